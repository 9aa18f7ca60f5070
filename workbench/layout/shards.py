"""How data and fully sharded parallelism group tensors, and how the latter cuts them.

Both talk in units: one unit per repeat of an indexed block, and one root unit with all
the rest. Data parallelism sums each unit's gradients as one flat bucket.

Each tensor is cut along dim 0 into chunks of ceil(rows / degree) rows, as
`torch.chunk` does: the last ranks may hold fewer rows or none. In gathers and scatters
every chunk is padded to the full chunk size.

Fully sharded, blocks reshard after the forward; the root does not, since the backward
needs it at once (torch's own default for the root). These are FSDP2's rules.
"""

from dataclasses import dataclass

from workbench.errors import LayoutError


@dataclass(frozen=True, kw_only=True)
class ShardRule:
    """Which parameters are gathered together.

    Args:
        reshard_blocks: Whether a block's whole weights are dropped after its forward
            and gathered again for its backward.
        reshard_root: The same for the root group.
    """

    reshard_blocks: bool = True
    reshard_root: bool = False


#: The rule that the planner predicts and `strategies` follows.
SHARD_RULE = ShardRule()


def chunk_rows(rows: int, degree: int) -> int:
    """Return the rows of a full chunk: what every rank sends, padding included.

    >>> chunk_rows(10, 4)
    3
    """
    if degree < 1:
        raise LayoutError(f"cannot cut {rows} rows over {degree} ranks")
    return -(-rows // degree)


def shard_rows(rows: int, degree: int, coordinate: int) -> int:
    """Return the rows that one rank of the shard group really holds.

    >>> [shard_rows(10, 4, c) for c in range(4)]
    [3, 3, 3, 1]
    >>> [shard_rows(2, 4, c) for c in range(4)]
    [1, 1, 0, 0]
    """
    chunk = chunk_rows(rows, degree)
    return max(0, min(chunk, rows - coordinate * chunk))
