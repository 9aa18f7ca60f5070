"""One direction between the device and another tier, as numbers."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Link:
    """One direction between the device and another tier.

    Args:
        bytes_per_s: Sustained rate.
        latency_s: Start-up of each transfer.
    """

    bytes_per_s: float
    latency_s: float = 0.0

    def seconds(self, num_bytes: float) -> float:
        """Return the time of one transfer.

        >>> Link(bytes_per_s=50e9).seconds(1e9)
        0.02
        """
        return self.latency_s + num_bytes / self.bytes_per_s
