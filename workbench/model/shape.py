"""The numbers that fix a decoder's shapes, checked once for all presets."""

from dataclasses import dataclass

from workbench.errors import ModelError


@dataclass(frozen=True, kw_only=True)
class DecoderShape:
    """Shapes of a decoder-only transformer. Valid once built.

    Args:
        hidden: Width of the residual stream.
        num_layers: Equal transformer layers.
        num_heads: Query heads; `head_dim` wide each.
        num_kv_heads: Key and value heads; divides `num_heads`.
        head_dim: Width of a head.
        ffn: Width of the MLP's middle.
        vocab_size: Tokens of the vocabulary.
        tokens_per_sample: Sequence length.
        tied: Whether the output matrix is the token embedding.

    Raises:
        ModelError: With the relation that failed and a value that would work.
    """

    hidden: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn: int
    vocab_size: int
    tokens_per_sample: int
    tied: bool

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, bool):
                continue
            if not isinstance(value, int) or value < 1:
                raise ModelError(
                    f"{name} is {value!r}, it must be a whole number of at least 1",
                    hint=f"leave {name} out for the preset's own value",
                )
        if self.num_heads % self.num_kv_heads:
            raise ModelError(
                f"num_heads {self.num_heads} does not divide into num_kv_heads "
                f"{self.num_kv_heads} equal groups",
                hint=f"try num_kv_heads={largest_divisor(self.num_heads, self.num_kv_heads)}",
            )

    @property
    def query_width(self) -> int:
        """Width of all query heads together."""
        return self.num_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all key heads together (and of all value heads)."""
        return self.num_kv_heads * self.head_dim


def largest_divisor(number: int, at_most: int) -> int:
    """Return the largest divisor of a number that is not above a bound.

    >>> largest_divisor(12, 5)
    4
    """
    return max(d for d in range(1, min(number, max(at_most, 1)) + 1) if number % d == 0)


def head_width(hidden: int, num_heads: int) -> int:
    """Return the width of one head where heads share the hidden width.

    Raises:
        ModelError: The heads do not divide the width.
    """
    if num_heads < 1 or hidden % num_heads:
        raise ModelError(
            f"hidden {hidden} does not divide by num_heads {num_heads}",
            hint=f"try num_heads={largest_divisor(hidden, num_heads)}, or give head_dim",
        )
    return hidden // num_heads
