"""The learning rate of each step: linear warm-up, then a cosine."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CosineSchedule:
    """Warm-up over the first steps, then a cosine down to a share of the peak.

    A warm-up counts in steps, not in shares of a run: Adam's second moments need some
    tens of gradients before a full rate is safe, however short the run.

    Args:
        peak: The highest learning rate.
        num_steps: Steps of the whole run.
        warmup_steps: At most; never more than half of the run.
        final_share: Of the peak, reached at the last step.
    """

    peak: float
    num_steps: int
    warmup_steps: int = 20
    final_share: float = 0.1

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0.

        >>> schedule = CosineSchedule(peak=1.0, num_steps=100)
        >>> schedule.rate(0), schedule.rate(19), round(schedule.rate(99), 2)
        (0.05, 1.0, 0.1)
        """
        warmup = max(1, min(self.warmup_steps, self.num_steps // 2))
        if step < warmup:
            return self.peak * (step + 1) / warmup
        done = min(1.0, (step - warmup + 1) / max(1, self.num_steps - warmup))
        cosine = (1 + math.cos(math.pi * done)) / 2
        return self.peak * (self.final_share + (1 - self.final_share) * cosine)
