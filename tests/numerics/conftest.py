"""Ranks are forked from this process: what they import at first use is imported here."""

import pytest

from workbench.training import warm


@pytest.fixture(autouse=True, scope="session")
def _warmed() -> None:
    warm()
