"""Memory and device sensors of one process."""

from workbench.sensors.memory import device_memory, heap_bytes, rss_bytes
from workbench.sensors.sampler import MemorySampler

__all__ = ["MemorySampler", "device_memory", "heap_bytes", "rss_bytes"]
