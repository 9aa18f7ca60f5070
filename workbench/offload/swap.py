"""Swap: saved activations leave the device after the forward and return in time (S01).

The mechanism of Matzek et al. (arXiv 1811.12174), with torch's saved-tensor hooks in
place of a rewritten graph: a node of their topological order is here one saved tensor.
Gradients do not change in a single bit, because the same bytes come back.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from workbench.errors import OffloadError
from workbench.offload.lanes import Throttle, lanes_between
from workbench.offload.swap_pass import Pass
from workbench.offload.tiers import HostTier, Pool, Tier
from workbench.planner.offload.link import Link
from workbench.planner.offload.swap import SwapSetting, tune_swap
from workbench.units import MIB

#: Large enough that starting a copy does not count.
_PROBE_BYTES = 4 * MIB


class Swap:
    """Saved-tensor hooks that move activations to a tier and back.

    Args:
        module: Whose parameters stay where they are.
        setting: Which tensors, and how far ahead they return; may be changed between
            steps.
        tier: Where they go; its memory is reused from step to step.
        device: Where they are used.
        throttle: A link to behave like (CPU-only machines).
    """

    def __init__(
        self,
        module: nn.Module,
        setting: SwapSetting,
        tier: Tier,
        *,
        device: torch.device,
        throttle: Throttle | None = None,
    ) -> None:
        self.module = module
        self.setting = setting
        self.device = device
        self.pool = Pool(tier)
        pinned = isinstance(tier, HostTier) and tier.pinned
        self.lanes = lanes_between(device, pinned=pinned, throttle=throttle)
        self.last: Pass | None = None

    @contextmanager
    def forward(self) -> Iterator["Pass"]:
        """Swap what the forward inside saves; its backward may run inside or later."""
        self.last = Pass(
            self.module,
            self.setting,
            lanes=self.lanes,
            pool=self.pool,
            device=self.device,
            num_expected=self.last.num_saved if self.last else None,
        )
        hooks = torch.autograd.graph.saved_tensors_hooks
        with hooks(self.last.pack, self.last.unpack):
            yield self.last

    def attach(self, module: nn.Module) -> None:
        """Swap whatever a module's forward saves from now on, each time it is called."""
        running: list[AbstractContextManager[Any]] = []

        def begin(*_: Any) -> None:
            saves = torch.is_grad_enabled()
            running.append(self.forward() if saves else nullcontext())
            running[-1].__enter__()

        def end(*_: Any) -> None:
            running.pop().__exit__(None, None, None)

        module.register_forward_pre_hook(begin, prepend=True)
        module.register_forward_hook(end, always_call=True)

    def tune(self, *, budget_bytes: int) -> SwapSetting:
        """Choose how many tensors leave and how far ahead they return; use it from now.

        By S01's rule, from the sizes and times of the last forward and backward and from
        a copy each way: the fewest tensors whose saved bytes fit, then the least
        distance that hides the transfers, as far as the budget allows.

        Args:
            budget_bytes: For saved tensors on the device.

        Raises:
            OffloadError: Nothing has run yet.
            PlanError: Even all of them do not fit, with the least budget that would do.
        """
        if self.last is None:
            raise OffloadError(
                "nothing has been swapped yet to choose by",
                hint="run one forward and backward with num_tensors=-1 first",
            )
        self.setting = tune_swap(
            self.last.profile(),
            budget_bytes=budget_bytes,
            outward=self.link(inward=False),
            inward=self.link(inward=True),
            min_bytes=self.setting.min_bytes,
        )
        return self.setting

    def link(self, *, inward: bool) -> Link:
        """Return a lane's rate as it is now, from the second of two copies."""
        away = self.pool.take(_PROBE_BYTES)
        here = torch.empty(_PROBE_BYTES, dtype=torch.uint8, device=self.device)
        for _ in range(2):
            began_s = time.perf_counter()
            if inward:
                self.lanes.inward.copy([(here, away)]).finish()
            else:
                self.lanes.outward.copy([(away, here)]).finish()
        elapsed_s = time.perf_counter() - began_s
        self.pool.give(away)
        return Link(bytes_per_s=_PROBE_BYTES / elapsed_s)

    def close(self) -> None:
        """End the lanes."""
        self.lanes.close()
