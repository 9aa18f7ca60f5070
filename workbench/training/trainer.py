"""The training loop of one rank: strategy, data, schedule, checkpoints, telemetry."""

import time
from pathlib import Path
from typing import Any

import torch

from workbench import strategies
from workbench.collectives.ranks import Ranks
from workbench.data import Corpus
from workbench.errors import LayoutError, ModelError
from workbench.layout import Layout
from workbench.layout.layout import DATA_AXES
from workbench.planner.contract import Plan
from workbench.sensors import heap_bytes
from workbench.strategies import nets
from workbench.training import checkpoint
from workbench.training.progress import ProgressLine
from workbench.training.result import FitResult
from workbench.training.sampling import continue_text
from workbench.training.schedule import CosineSchedule

#: Global batches that one evaluation looks at.
_EVAL_BATCHES = 8


class Trainer:
    """Trains the planned model with the planned layout, on every rank of it.

    Args:
        plan: What was planned: model, layout and global batch are taken from it.
        data: What to train on.
        ranks: This rank's view of the group.
        lr: Peak learning rate.
        seed: Of initial values and data order; equal on all ranks.
        weight_decay: AdamW's.

    Raises:
        LayoutError: The plan is for other ranks, or its layout cannot run yet.
        ModelError: Model and data do not fit together.
    """

    def __init__(
        self,
        plan: Plan,
        data: Corpus,
        ranks: Ranks,
        *,
        lr: float = 3e-3,
        seed: int = 0,
        weight_decay: float = 0.1,
    ) -> None:
        _check(plan, data, ranks)
        self.plan = plan
        self.data = data
        self.ranks = ranks
        self.lr = lr
        self.seed = seed
        self.step = 0
        self._horizon = 0
        self._heap_base_bytes = heap_bytes()
        self._settled = False
        settings = strategies.Settings(
            nominal_tokens=plan.global_batch * data.tokens_per_sample,
            seed=seed,
            weight_decay=weight_decay,
        )
        self.strategy = strategies.build(plan.layout, settings)
        with torch.device("meta"):
            net = nets.build(plan.model)
        with ranks.group.phase("setup"):
            self.module = self.strategy.prepare(net, plan.layout, ranks)
        self._coordinate, self._num_parts = data_share(plan.layout, ranks.rank)

    # Training -----------------------------------------------------------------------

    def fit(
        self,
        num_steps: int,
        *,
        eval_every: int = 0,
        checkpoint_every: int = 0,
        checkpoint_dir: str | Path | None = None,
    ) -> FitResult:
        """Train `num_steps` more steps; all ranks call this.

        Args:
            num_steps: How many; the learning rate's cosine ends with the last.
            eval_every: Evaluate before the first step, each so many steps, and after
                the last; 0 means never.
            checkpoint_every: Save each so many steps into `checkpoint_dir`; 0: never.
            checkpoint_dir: Where checkpoints go, as `step-000025`.
        """
        first, began_s = self.step, time.monotonic()
        last = first + num_steps
        self._horizon = max(self._horizon, last)
        progress = ProgressLine(shown=self.ranks.rank == 0, num_steps=last)
        losses: list[float] = []
        val_losses: list[tuple[int, float]] = []
        num_tokens, step_s = 0, 0.0
        try:
            with self.ranks.group.phase("training"):
                if eval_every:
                    val_losses.append((self.step, self.evaluate()))
                while self.step < last:
                    loss, tokens, seconds = self._one_step()
                    losses.append(loss)
                    num_tokens, step_s = num_tokens + tokens, step_s + seconds
                    at_end = self.step == last
                    if eval_every and (self.step % eval_every == 0 or at_end):
                        val_losses.append((self.step, self.evaluate()))
                    if (
                        checkpoint_every
                        and checkpoint_dir
                        and self.step % checkpoint_every == 0
                    ):
                        self.save(Path(checkpoint_dir) / f"step-{self.step:06d}")
                    progress.update(
                        _progress_text(loss, val_losses, tokens / seconds),
                        step=self.step,
                    )
        except BaseException:
            # A step that was broken off leaves half a gradient; the next starts clean.
            self.strategy.reset()
            raise
        finally:
            progress.close()
        return FitResult(
            first_step=first,
            last_step=self.step,
            losses=tuple(losses),
            val_losses=tuple(val_losses),
            tokens_per_s=num_tokens / step_s if step_s else 0.0,
            seconds=time.monotonic() - began_s,
        )

    def _one_step(self) -> tuple[float, int, float]:
        """Run one step; returns loss, tokens and seconds."""
        began_s = time.perf_counter()
        rate = CosineSchedule(peak=self.lr, num_steps=self._horizon).rate(self.step)
        batch = self.data.batch(
            seed=self.seed,
            step=self.step,
            global_batch=self.plan.global_batch,
            coordinate=self._coordinate,
            num_parts=self._num_parts,
        )
        input_s = time.perf_counter() - began_s
        with self.ranks.group.phase("step"):
            result = self.strategy.step(batch, learning_rate=rate)
        self.step += 1
        seconds = time.perf_counter() - began_s
        self._tell_step(result, {"input": input_s, **result.seconds}, rate, seconds)
        return result.loss, result.num_tokens, seconds

    def evaluate(self) -> float:
        """Return the mean loss over fixed validation batches; all ranks call this."""
        cause = f"evaluation:{self.step}"
        total, num_tokens = 0.0, 0
        for index in range(_EVAL_BATCHES):
            batch = self.data.validation_batch(
                index,
                global_batch=self.plan.global_batch,
                coordinate=self._coordinate,
                num_parts=self._num_parts,
            )
            with self.ranks.group.phase("evaluation"):
                loss, count = self.strategy.evaluate(batch)
            self.ranks.group.flush(run=self.ranks.run, cause=cause)
            total, num_tokens = total + loss * count, num_tokens + count
        val_loss = total / num_tokens
        if self.ranks.rank == 0:
            self.ranks.emit("metric", cause=cause, step=self.step, val_loss=val_loss)
        return val_loss

    def complete(
        self, prompt: str, num_bytes: int, *, temperature: float = 0.7, seed: int = 0
    ) -> str:
        """Return the prompt continued by the net.

        Where every rank holds the whole net, one rank may call this alone; where the
        net is cut (fsdp, tp, pp), all ranks call it together.
        """
        with self.ranks.group.phase("cell"):
            return continue_text(
                self.strategy.logits,
                prompt,
                num_bytes=num_bytes,
                context=self.data.tokens_per_sample,
                temperature=temperature,
                seed=seed,
            )

    # Checkpoints --------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write a checkpoint, complete or not at all; all ranks call this."""
        began_s = time.monotonic()
        note = checkpoint.Note(
            step=self.step,
            horizon=self._horizon,
            seed=self.seed,
            model=self.plan.model.to_json(),
            data_digest=self.data.digest,
            global_batch=self.plan.global_batch,
        )
        with self.ranks.group.phase("checkpoint"):
            checkpoint.save(
                Path(path), self.strategy.gather_state(), note, rank=self.ranks.rank
            )
        self._tell_checkpoint("save", path, began_s)

    def load(self, path: str | Path) -> None:
        """Go on from a checkpoint, exactly as if never stopped; all ranks call this.

        Raises:
            DataError: No complete checkpoint lies there.
            ModelError: It is of another model.
        """
        began_s = time.monotonic()
        note = checkpoint.read_note(Path(path))
        if note.model != self.plan.model.to_json():
            raise ModelError(
                f"the checkpoint in {path} is of another model than {self.plan.model.name!r}",
                hint="plan the model that was saved, or train this one from the start",
            )
        with self.ranks.group.phase("checkpoint"):
            state = self.strategy.gather_state()
            checkpoint.load(Path(path), state)
            self.strategy.load_state(state)
        self.step, self.seed, self._horizon = note.step, note.seed, note.horizon
        self._tell_checkpoint("load", path, began_s)

    # Telemetry ----------------------------------------------------------------------

    def _tell_step(
        self,
        result: strategies.StepResult,
        phases: dict[str, float],
        rate: float,
        seconds: float,
    ) -> None:
        cause = f"step:{self.step}"
        self.ranks.group.flush(run=self.ranks.run, cause=cause)
        for name, phase_s in phases.items():
            self.ranks.emit("phase", cause=cause, name=name, seconds=phase_s)
        if not self._settled:
            self._settle()
            self._tell_memory(cause)
        elif self.step % 100 == 0:
            self._tell_memory(cause)
        if self.ranks.rank == 0:
            self.ranks.emit(
                "metric",
                cause=cause,
                step=self.step,
                loss=result.loss,
                grad_norm=result.grad_norm,
                lr=rate,
                step_s=seconds,
                tokens_per_s=result.num_tokens / seconds,
            )

    def _settle(self) -> None:
        """Leave what a first step loads for good, parts of torch, out of the model's bytes.

        Between steps a rank's own tensors are all that a model takes of the heap.
        """
        self._settled = True
        live_bytes = heap_bytes()
        if live_bytes is not None and self._heap_base_bytes is not None:
            others_bytes = live_bytes - self.strategy.held_bytes()
            self._heap_base_bytes = max(self._heap_base_bytes, others_bytes)

    def _tell_memory(self, cause: str) -> None:
        """Say what this rank's tensors take, by kind; a viewer keeps the last it saw."""
        held = self.strategy.state_bytes()
        self.ranks.emit(
            "sample",
            cause=cause,
            heap_bytes=heap_bytes(),
            heap_base_bytes=self._heap_base_bytes,
            weights_bytes=held.weights,
            gradients_bytes=held.gradients,
            optimizer_bytes=held.optimizer,
        )

    def _tell_checkpoint(self, action: str, path: str | Path, began_s: float) -> None:
        cause = f"step:{self.step}"
        self.ranks.group.flush(run=self.ranks.run, cause=cause)
        self.ranks.emit(
            "checkpoint",
            cause=cause,
            action=action,
            path=str(path),
            step=self.step,
            seconds=time.monotonic() - began_s,
        )


def data_share(layout: Layout, rank: int) -> tuple[int, int]:
    """Return which share of each global batch a rank works on, and of how many."""
    coordinates = layout.coordinates(rank)
    share, num_parts = 0, 1
    for axis in layout.order:
        if axis in DATA_AXES:
            share = share * layout.degree(axis) + coordinates.get(axis, 0)
            num_parts *= layout.degree(axis)
    return share, num_parts


def _check(plan: Plan, data: Corpus, ranks: Ranks) -> None:
    strategies.check(plan.layout)
    if plan.layout != ranks.layout:
        raise LayoutError(
            f"the plan is for {_degrees(plan.layout)}, the ranks stand as "
            f"{_degrees(ranks.layout)}",
            hint="begin a run with this plan: session.begin_run(plan)",
        )
    numbers: tuple[tuple[str, Any, Any], ...] = (
        ("tokens_per_sample", plan.model.tokens_per_sample, data.tokens_per_sample),
        ("vocab_size", plan.model.number("vocab_size"), data.vocab_size),
    )
    for name, of_model, of_data in numbers:
        if of_model < of_data:
            raise ModelError(
                f"{name} is {of_data} in the data and {of_model} in the model",
                hint=f"plan the model with {name}={of_data}",
            )


def _degrees(layout: Layout) -> str:
    return (
        " x ".join(f"{axis}={layout.degree(axis)}" for axis in layout.axes())
        or "one rank"
    )


def _progress_text(
    loss: float, val_losses: list[tuple[int, float]], tokens_per_s: float
) -> str:
    text = f"loss {loss:.3f}"
    if val_losses:
        text += f", validation {val_losses[-1][1]:.3f}"
    return f"{text}, {tokens_per_s:,.0f} tokens/s"
