"""Loads once what DTensor loads on first use: some seconds that forked ranks inherit."""

import torch._dynamo  # noqa: F401
