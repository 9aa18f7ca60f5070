"""What all strategies share whose ranks each run the whole net on their samples."""

import time
from abc import abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from workbench.collectives.ranks import Ranks
from workbench.layout import Layout
from workbench.layout.scalars import SCALAR_DTYPE, STEP_SCALARS
from workbench.strategies.contract import Settings, StateBytes, StepResult, Strategy
from workbench.strategies.nets import Decoder
from workbench.strategies.pieces import local

Batch = tuple[torch.Tensor, torch.Tensor]


class WholeNet(Strategy):
    """A step of forward, backward, one small reduction, clipping and AdamW.

    Subclasses say how gradients become sums over all ranks, and how often each
    gradient element is held among the ranks.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def prepare(self, module: nn.Module, layout: Layout, ranks: Ranks) -> nn.Module:
        """Give the net its values, wrap it, and make the optimizer."""
        assert isinstance(module, Decoder)
        self.ranks = ranks
        self.num_microbatches = layout.num_microbatches
        self.net: nn.Module = self.wrap(module)
        self.optimizer = adamw(self.net, self.settings)
        return self.net

    @abstractmethod
    def wrap(self, net: Decoder) -> nn.Module:
        """Give the net its values and prepare it for this way of training."""

    @property
    @abstractmethod
    def gradient_copies(self) -> int:
        """Ranks that hold the same gradient element after the reduction."""

    def accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        """Surround one micro-batch; only the last one's backward reduces gradients."""
        del last
        return nullcontext()

    def finish_gradients(self) -> None:
        """Wait until the gradients are sums over all ranks."""

    def zero_gradients(self) -> None:
        """Make ready for the next step's backward."""
        self.optimizer.zero_grad(set_to_none=True)

    def reset(self) -> None:
        """Drop the gradients of a step that was broken off."""
        self.zero_gradients()

    # A step -------------------------------------------------------------------------

    def step(self, batch: Batch, *, learning_rate: float) -> StepResult:
        """Run forward, backward and optimizer on this rank's share of a global batch."""
        clock = Clock()
        loss_sum = self._forward_backward(batch, clock)
        self.finish_gradients()
        clock.lap("gradients")
        loss, count, norm = self._reduce_scalars(loss_sum, batch[1])
        self._update(learning_rate, norm, count)
        self.zero_gradients()
        clock.lap("optimizer")
        return StepResult(
            loss=loss,
            grad_norm=norm,
            num_tokens=count,
            seconds=clock.seconds,
        )

    def _forward_backward(self, batch: Batch, clock: "Clock") -> torch.Tensor:
        """Accumulate gradients of loss sum / nominal tokens; return the loss sum."""
        total = torch.zeros((), dtype=torch.float64, device=self.ranks.device)
        batch = (batch[0].to(self.ranks.device), batch[1].to(self.ranks.device))
        parts = list(
            zip(*(x.tensor_split(self.num_microbatches) for x in batch), strict=True)
        )
        for index, (inputs, targets) in enumerate(parts):
            with self.accumulating(last=index == len(parts) - 1):
                loss_sum = self._loss_sum(inputs, targets)
                total += loss_sum.detach()
                clock.lap("forward")
                (loss_sum / self.settings.nominal_tokens).backward()
                clock.lap("backward")
        return total

    def _loss_sum(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = self.net(inputs.to(self.ranks.device))
        return functional.cross_entropy(
            logits.flatten(0, 1),
            targets.to(self.ranks.device).flatten(),
            reduction="sum",
        )

    def _reduce_scalars(
        self, loss_sum: torch.Tensor, targets: torch.Tensor
    ) -> tuple[float, int, float]:
        """Return mean loss, tokens and gradient norm of the global batch, in one call."""
        shares = [*self.contribution(loss_sum, targets), self.gradient_squares().item()]
        loss, count, square = self._sum_over_ranks(shares)
        norm = square**0.5 * self.settings.nominal_tokens / count
        return loss / count, round(count), norm

    def contribution(
        self, loss_sum: torch.Tensor, targets: torch.Tensor
    ) -> list[float]:
        """Return this rank's share of loss sum and tokens, so that all shares add up."""
        return [loss_sum.item(), float(targets.numel())]

    def gradient_squares(self) -> torch.Tensor:
        """Return this rank's share of the squared norm of all gradients."""
        return sum_of_squares(self.local_gradients()) / self.gradient_copies

    def _sum_over_ranks(self, shares: list[float]) -> list[float]:
        """Sum the step's scalars over all ranks, in the one call that is planned."""
        assert len(shares) == len(STEP_SCALARS)
        if self.ranks.world_size == 1:
            return shares
        dtype = getattr(torch, SCALAR_DTYPE)
        scalars = torch.tensor(shares, dtype=dtype, device=self.ranks.device)
        dist.all_reduce(scalars)
        values: list[float] = scalars.tolist()
        return values

    def _update(self, learning_rate: float, norm: float, count: int) -> None:
        """Correct gradients by the true token count, clip them, and step."""
        scale = self.settings.nominal_tokens / count
        scale *= min(1.0, self.settings.max_grad_norm / (norm + 1e-6))
        if scale != 1.0:
            torch._foreach_mul_(self.local_gradients(), scale)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()

    def local_gradients(self) -> list[torch.Tensor]:
        """Return this rank's gradients, each as a plain tensor."""
        return [
            local(parameter.grad)
            for parameter in self.net.parameters()
            if parameter.grad is not None
        ]

    # Beside the step ----------------------------------------------------------------

    def evaluate(self, batch: Batch) -> tuple[float, int]:
        """Return mean loss and tokens of a global batch of which this is a share."""
        with torch.no_grad():
            loss_sum = self._evaluated(batch)
        shares = [*self.contribution(loss_sum, batch[1]), 0.0]
        loss, num_tokens, _ = self._sum_over_ranks(shares)
        return loss / num_tokens, round(num_tokens)

    def _evaluated(self, batch: Batch) -> torch.Tensor:
        """Return the loss sum of this rank's share of a batch."""
        return self._loss_sum(*batch).double()

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits [B, T, V] of tokens [B, T], without gradients."""
        with torch.no_grad():
            result: torch.Tensor = self.net(tokens.to(self.ranks.device))
        return result

    def state_bytes(self) -> StateBytes:
        """Return the bytes of this rank's tensors by kind, from the tensors."""
        parameters = list(self.net.parameters())
        return StateBytes(
            weights=bytes_of(parameters),
            # A gradient has the shape of its weight, and is there once per step.
            gradients=bytes_of(p for p in parameters if p.requires_grad),
            optimizer=bytes_of(
                value
                for state in self.optimizer.state.values()
                for value in state.values()
                if isinstance(value, torch.Tensor)
            ),
        )

    def held_bytes(self) -> int:
        """Return the bytes of weights, optimizer state and the gradients still there."""
        states = self.state_bytes()
        gradients = (p.grad for p in self.net.parameters() if p.grad is not None)
        return states.weights + states.optimizer + bytes_of(gradients)

    def gather_state(self) -> dict[str, Any]:
        """Return model and optimizer state in a form that DCP saves sharded.

        Tensors only, keyed by parameter name: nothing in it needs a pickle.
        """
        self._make_optimizer_state()
        parameters = dict(self.net.named_parameters())
        state: dict[str, Any] = {
            "model": {n: p.detach() for n, p in parameters.items()}
        }
        for key in MOMENTS:
            state[key] = {
                n: self.optimizer.state[p][key] for n, p in parameters.items()
            }
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        """Take back what `gather_state` gave, after DCP has filled it in place."""
        mine = self.gather_state()
        with torch.no_grad():
            for kind, tensors in mine.items():
                for name, tensor in tensors.items():
                    tensor.copy_(state[kind][name])

    def _make_optimizer_state(self) -> None:
        """Give every parameter the moments that AdamW would make at its first step."""
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if not self.optimizer.state[parameter]:
                    self.optimizer.state[parameter] = {
                        "step": torch.zeros((), device=self.ranks.device),
                        "exp_avg": torch.zeros_like(parameter, requires_grad=False),
                        "exp_avg_sq": torch.zeros_like(parameter, requires_grad=False),
                    }


#: AdamW's state of one parameter.
MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class Clock:
    """Sums the time between laps by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.restart()

    def restart(self) -> None:
        """Begin a lap now."""
        self._last_s = time.perf_counter()

    def lap(self, name: str) -> None:
        """End a lap: its time goes to `name`."""
        now_s = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now_s - self._last_s
        self._last_s = now_s


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes that this rank holds of some tensors."""
    return sum(local(t).numel() * t.element_size() for t in tensors)


def sum_of_squares(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return the sum of squares of all elements, in float64."""
    if not tensors:
        return torch.zeros((), dtype=torch.float64)
    norms = torch.stack(torch._foreach_norm(tensors)).double()
    return norms.square().sum()


def adamw(net: nn.Module, settings: Settings) -> torch.optim.AdamW:
    """Return the optimizer of all strategies: matrices decay, vectors do not."""
    parameters = list(net.parameters())
    return adamw_of(
        [p for p in parameters if p.ndim >= 2],
        [p for p in parameters if p.ndim < 2],
        settings,
    )


def adamw_of(
    decayed: list[nn.Parameter], others: list[nn.Parameter], settings: Settings
) -> torch.optim.AdamW:
    """Return AdamW over tensors that decay and tensors that do not."""
    groups: list[dict[str, Any]] = [
        {"params": decayed},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups,
        lr=0.0,
        betas=settings.betas,
        eps=settings.eps,
        weight_decay=settings.weight_decay,
        fused=True,
    )
