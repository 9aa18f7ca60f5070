"""Units: constants to compute with, and text for the edge where a person reads.

Numbers inside the project are raw bytes, seconds and FLOPs; only views format.
"""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB

KILO = 1_000
MEGA = 1_000_000
GIGA = 1_000_000_000
TERA = 1_000_000_000_000

#: Bytes of one element, by the names used in layouts and specs.
DTYPE_BYTES = {
    "float64": 8,
    "int64": 8,
    "float32": 4,
    "int32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8": 1,
    "uint8": 1,
    "bool": 1,
}


def bytes_text(num_bytes: float) -> str:
    """Format bytes with a binary prefix.

    >>> bytes_text(37.2 * GIB)
    '37.2 GiB'
    >>> bytes_text(512)
    '512 B'
    """
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(num_bytes) >= unit:
            return f"{num_bytes / unit:.1f} {name}"
    return f"{num_bytes:.0f} B"


def seconds_text(seconds: float) -> str:
    """Format a duration with the unit a person would choose.

    >>> seconds_text(0.0042)
    '4.2 ms'
    >>> seconds_text(75)
    '1 min 15 s'
    """
    if abs(seconds) < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if abs(seconds) < 1:
        return f"{seconds * 1e3:.1f} ms"
    if abs(seconds) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def count_text(count: float) -> str:
    """Format a large count with a decimal prefix.

    >>> count_text(70_600_000_000)
    '70.6 B'
    >>> count_text(1234)
    '1.2 K'
    """
    for unit, name in ((TERA, "T"), (GIGA, "B"), (MEGA, "M"), (KILO, "K")):
        if abs(count) >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f}"
