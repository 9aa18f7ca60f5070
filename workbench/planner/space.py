"""Every layout that a search looks at, as arrays, with what was left out and why."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.errors import PlanError
from workbench.layout import Layout
from workbench.layout.layout import Precision
from workbench.model import ModelSpec
from workbench.planner.case import RECOMPUTES, SCHEDULES, Case

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Space:
    """Layouts of a search in arrays of equal length.

    Args:
        columns: Degrees and choices by name, as in `Layout`, codes for words.
        micro_batch: Samples of a micro-batch.
        precision: Of all.
        left_out: Combinations that no run could have, by reason.
    """

    columns: dict[str, Ints]
    micro_batch: Ints
    precision: Precision
    left_out: dict[str, int]

    def __len__(self) -> int:
        return len(self.micro_batch)

    def part(self, begin: int, end: int) -> "Space":
        """Return a run of layouts."""
        return Space(
            columns={name: values[begin:end] for name, values in self.columns.items()},
            micro_batch=self.micro_batch[begin:end],
            precision=self.precision,
            left_out={},
        )

    def layout(self, index: int) -> Layout:
        """Return one layout as a person writes it."""
        values = {name: int(column[index]) for name, column in self.columns.items()}
        return Layout(
            **{
                **values,
                "schedule": SCHEDULES[values["schedule"]],
                "recompute": RECOMPUTES[values["recompute"]],
                "sp": bool(values["sp"]),
                "precision": self.precision,
            }  # type: ignore[arg-type]
        )

    def cases(self) -> Case:
        """Return all layouts as one array case, first stage and shard."""
        zero = np.zeros(len(self), dtype=np.int64)
        rest = {
            "ep": zero + 1,
            "context": zero,
            "ends_as_layers": zero,
            "offload_optimizer": zero,
            "offload_activations": zero,
            "offload_weights": zero,
            "stage": zero,
            "shard": zero,
        }
        names = {field.name for field in fields(Case)}
        columns = {k: v for k, v in self.columns.items() if k in names}
        degrees: dict[str, Any] = {**columns, **rest}
        return Case(
            **degrees,
            precision=self.precision,
            micro_batch=self.micro_batch,
            strides=_strides(self.columns),
        )


def space(
    model: ModelSpec, num_ranks: int, *, global_batch: int, precision: Precision
) -> Space:
    """Return every layout of pp, dp, fsdp, cp, tp with its schedules and recompute.

    Raises:
        PlanError: No layout divides ranks, batch and model.
    """
    columns = _grid(model, num_ranks, global_batch)
    left_out: dict[str, int] = {}
    for reason, keep in _rules(model, global_batch):
        kept = keep(columns)
        left_out[reason] = int((~kept).sum())
        columns = {name: values[kept] for name, values in columns.items()}
    if not len(columns["pp"]):
        raise PlanError(
            f"no layout of {num_ranks} ranks divides global_batch {global_batch} and "
            f"{model.name}",
            hint="try a number of ranks and a batch with more divisors",
        )
    micro = columns.pop("micro_batch")
    columns["num_microbatches"] = global_batch // (_data_ranks(columns) * micro)
    return Space(
        columns=columns, micro_batch=micro, precision=precision, left_out=left_out
    )


def _divisors(number: int, at_most: int) -> list[int]:
    return [d for d in range(1, min(number, at_most) + 1) if number % d == 0]


def _grid(model: ModelSpec, num_ranks: int, global_batch: int) -> dict[str, Ints]:
    """Return degrees that multiply to the ranks, crossed with all choices."""
    numbers = dict(model.hyper)
    layers = sum(block.repeat for block in model.blocks if block.indexed)
    heads = int(numbers.get("num_heads", 1))
    degrees = _product(
        pp=_divisors(num_ranks, layers),
        tp=[d for d in _divisors(num_ranks, 64) if heads % d == 0],
        cp=[d for d in _divisors(num_ranks, 64) if model.tokens_per_sample % d == 0],
        fsdp=_divisors(num_ranks, num_ranks),
    )
    used = degrees["pp"] * degrees["tp"] * degrees["cp"] * degrees["fsdp"]
    kept = num_ranks % used == 0
    degrees = {name: values[kept] for name, values in degrees.items()}
    degrees["dp"] = num_ranks // used[kept]
    choices = _product(
        micro_batch=[d for d in (1, 2, 4, 8, 16, 32) if d <= global_batch],
        recompute=[RECOMPUTES.index("none"), RECOMPUTES.index("full")],
        zero=[0, 1],
        way=list(range(len(_WAYS))),
        sp=[0, 1],
    )
    ways = np.array(_WAYS, dtype=np.int64)[choices.pop("way")]
    choices["schedule"], choices["chunks"] = ways[:, 0], ways[:, 1]
    many, each = len(kept.nonzero()[0]), len(ways)
    crossed = {name: np.repeat(values, each) for name, values in degrees.items()}
    crossed.update({name: np.tile(values, many) for name, values in choices.items()})
    return crossed


#: Schedules with their chunks per rank.
_WAYS = (
    (SCHEDULES.index("1f1b"), 1),
    (SCHEDULES.index("zb-h1"), 1),
    *(
        (SCHEDULES.index("interleaved"), chunks)
        for chunks in (2, 3, 4, 5, 6, 8, 10, 12)
    ),
)


def _product(**axes: list[int]) -> dict[str, Ints]:
    """Return all combinations, one array per name."""
    mesh = np.meshgrid(
        *(np.array(v, dtype=np.int64) for v in axes.values()), copy=False
    )
    return dict(zip(axes, (part.ravel() for part in mesh), strict=True))


def _data_ranks(columns: dict[str, Ints]) -> Ints:
    return columns["dp"] * columns["fsdp"]


def _rules(
    model: ModelSpec, global_batch: int
) -> Iterator[tuple[str, Callable[[dict[str, Ints]], Bools]]]:
    """Yield reasons and tests, in an order in which each may rely on those before."""
    layers = sum(block.repeat for block in model.blocks if block.indexed)
    interleaved = SCHEDULES.index("interleaved")

    def divides_batch(c: dict[str, Ints]) -> Bools:
        kept: Bools = global_batch % (_data_ranks(c) * c["micro_batch"]) == 0
        return kept

    def has_a_use(c: dict[str, Ints]) -> Bools:
        """One name per layout: no choice that changes nothing."""
        kept: Bools = (
            ((c["sp"] == 0) | (c["tp"] > 1))
            & ((c["zero"] == 0) | ((c["dp"] > 1) & (c["fsdp"] == 1)))
            & ((c["pp"] > 1) | ((c["chunks"] == 1) & (c["schedule"] == 1)))
        )
        return kept

    def has_stages(c: dict[str, Ints]) -> Bools:
        parts = global_batch // (_data_ranks(c) * c["micro_batch"])
        whole = (c["schedule"] != interleaved) | (parts % c["pp"] == 0)
        kept: Bools = whole & (c["pp"] * c["chunks"] <= layers)
        return kept

    def has_tokens(c: dict[str, Ints]) -> Bools:
        local = model.tokens_per_sample // c["cp"]
        kept: Bools = (c["sp"] == 0) | (local % c["tp"] == 0)
        return kept

    yield "the batch does not divide", divides_batch
    yield "a choice without effect", has_a_use
    yield "more stages than layers, or micro-batches not in rounds of pp", has_stages
    yield "tokens do not divide", has_tokens


def _strides(columns: dict[str, Ints]) -> dict[str, Ints]:
    """Return strides of the default order: pp, dp, fsdp, cp, ep, tp."""
    tp, cp, fsdp, dp = (columns[name] for name in ("tp", "cp", "fsdp", "dp"))
    one = np.ones_like(tp)
    return {
        "world": one,
        "tp": one,
        "ep": tp,
        "cp": tp,
        "fsdp": tp * cp,
        "dp": tp * cp * fsdp,
        "pp": tp * cp * fsdp * dp,
    }
