"""CUDA devices of this machine by UUID, found without opening one.

Opening a device in a supervisor would cost it hundreds of megabytes and forbid forks.
"""

import os
from pathlib import Path

_DRIVER = Path("/proc/driver/nvidia/gpus")


def visible_devices(
    folder: Path = _DRIVER, visible: str | None = None
) -> tuple[str, ...]:
    """Return the UUIDs of the devices that this process may use, by bus position.

    Args:
        folder: Where the driver describes its devices.
        visible: As $CUDA_VISIBLE_DEVICES, which is read where this is None: positions
            or UUIDs (also of MIG slices); "" hides all.
    """
    found = tuple(_uuid(each) for each in sorted(folder.glob("*/information")))
    if visible is None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(uuid for uuid in found if uuid)
    return _chosen(found, [part.strip() for part in visible.split(",")])


def _chosen(found: tuple[str, ...], wanted: list[str]) -> tuple[str, ...]:
    """Return what the list names, up to the first entry that names nothing, as CUDA does."""
    chosen: list[str] = []
    for part in wanted:
        if part.isdigit() and int(part) < len(found):
            chosen.append(found[int(part)])
        elif found and part.startswith(("GPU-", "MIG-")):
            chosen.append(part)
        else:
            break
    return tuple(chosen)


def _uuid(information: Path) -> str:
    for line in information.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "GPU UUID":
            return value.strip()
    return ""
