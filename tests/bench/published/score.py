"""Scores of predictions beside published values: errors, floor, order, regret."""

import hashlib
import math
import statistics
from collections import defaultdict
from dataclasses import dataclass

from tests.bench.published.rows import Row


def is_calibration(row: Row) -> bool:
    """One stated tenth of the rows may be fitted on: by the hash of the row's id."""
    digest = hashlib.sha256(row["row_id"].encode()).hexdigest()
    return int(digest, 16) % 10 == 0


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One row's published and predicted value."""

    row: Row
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative error, signed."""
        return self.predicted / self.measured - 1


def summary(pairs: list[Pair], floor: list[float]) -> dict[str, float | None]:
    """Return the figures of one file and quantity, in percent."""
    errors = [pair.error for pair in pairs]
    sizes = sorted(abs(error) for error in errors)
    return {
        "n": len(pairs),
        "mean_pct": _pct(statistics.fmean(sizes)),
        "median_pct": _pct(statistics.median(sizes)),
        "p90_pct": _pct(sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))]),
        "bias_pct": _pct(statistics.fmean(errors)),
        "floor_mean_pct": _pct(statistics.fmean(floor)) if floor else None,
        "rank_corr": rank_correlation(pairs),
        "regret_pct": regret(pairs),
    }


def _pct(value: float) -> float:
    return round(100 * value, 2)


def groups(pairs: list[Pair]) -> list[list[Pair]]:
    """Return rows that a person would choose among: same model, GPUs, batch, sequence."""
    found: dict[tuple[str, ...], list[Pair]] = defaultdict(list)
    for pair in pairs:
        keys = ("source", "model", "gpu", "n_gpus", "gbs", "seq_len", "precision")
        found[tuple(pair.row.get(key, "") for key in keys)].append(pair)
    return [group for group in found.values() if len(group) > 1]


def rank_correlation(pairs: list[Pair]) -> float | None:
    """Return Spearman's correlation within groups, mean weighted by their rows."""
    weighted = [
        (len(group), value)
        for group in groups(pairs)
        if len(group) > 2 and (value := _spearman(group)) is not None
    ]
    if not weighted:
        return None
    return round(
        sum(n * value for n, value in weighted) / sum(n for n, _ in weighted), 4
    )


def _spearman(group: list[Pair]) -> float | None:
    measured = _ranks([pair.measured for pair in group])
    predicted = _ranks([pair.predicted for pair in group])
    if len(set(measured)) < 2 or len(set(predicted)) < 2:
        return None
    return statistics.correlation(measured, predicted)


def _ranks(values: list[float]) -> list[float]:
    ordered = sorted(values)
    return [
        (ordered.index(v) + len(ordered) - 1 - ordered[::-1].index(v)) / 2
        for v in values
    ]


def regret(pairs: list[Pair]) -> float | None:
    """Return how much slower the chosen layout of each group is than its best, mean."""
    slower = []
    for group in groups(pairs):
        chosen = min(group, key=lambda pair: pair.predicted)
        slower.append(chosen.measured / min(pair.measured for pair in group) - 1)
    return _pct(statistics.fmean(slower)) if slower else None


def constant_floor(pairs: list[Pair], work: list[float]) -> list[float]:
    """Return errors of one constant efficiency per model, GPU and precision.

    Args:
        pairs: The rows.
        work: Model FLOPs over peak of each row, in seconds: the constant's only input.
    """
    rates: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for pair, ideal in zip(pairs, work, strict=True):
        rates[_kind(pair.row)].append(pair.measured / ideal)
    medians = {kind: statistics.median(found) for kind, found in rates.items()}
    return [
        abs(math.expm1(math.log(medians[_kind(pair.row)] * ideal / pair.measured)))
        for pair, ideal in zip(pairs, work, strict=True)
    ]


def _kind(row: Row) -> tuple[str, ...]:
    return tuple(row.get(key, "") for key in ("model", "gpu", "precision"))
