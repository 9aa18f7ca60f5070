"""A corpus of tokens, and the deterministic batches that come from it."""

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from workbench.errors import DataError

#: Inputs and the targets one token later, both int64 of shape [samples, tokens].
Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """Tokens to train on and to validate on, never from the same file.

    Args:
        name: What people call it.
        train: uint8 or int64 tokens, one dim.
        validation: The same, held out.
        tokens_per_sample: Inputs of one sample; a sample spans one token more.
        vocab_size: Tokens are below this.
        digest: Hash of the list of files with their contents.
        num_files: Files it was read from, (train, validation).
    """

    name: str
    train: torch.Tensor
    validation: torch.Tensor
    tokens_per_sample: int
    vocab_size: int
    digest: str
    num_files: tuple[int, int]

    def __post_init__(self) -> None:
        for part, tokens in (("train", self.train), ("validation", self.validation)):
            if len(tokens) <= self.tokens_per_sample:
                raise DataError(
                    f"the {part} part of {self.name!r} has {len(tokens)} tokens, one "
                    f"sample needs {self.tokens_per_sample + 1}",
                    hint="give more text, or a smaller tokens_per_sample",
                )

    def __repr__(self) -> str:
        return (
            f"Corpus({self.name!r}: {len(self.train):,} + {len(self.validation):,} "
            f"tokens from {self.num_files[0]} + {self.num_files[1]} files, "
            f"digest {self.digest[:12]})"
        )

    @property
    def num_samples(self) -> int:
        """Samples of one pass over the training part."""
        return (len(self.train) - 1) // self.tokens_per_sample

    def batch(
        self,
        *,
        seed: int,
        step: int,
        global_batch: int,
        coordinate: int,
        num_parts: int,
    ) -> Batch:
        """Return one data rank's share of a step's global batch.

        A pass visits every sample once, in an order drawn from (seed, pass); its last
        batch holds what is left. Shares differ by at most one sample and may be empty.

        Args:
            seed: Of the order.
            step: Counted from 0.
            global_batch: Samples of a full step over all data ranks.
            coordinate: Which share, from 0.
            num_parts: How many shares.
        """
        steps_per_pass = -(-self.num_samples // global_batch)
        epoch, place = divmod(step, steps_per_pass)
        order = _order(self.num_samples, seed, epoch)
        chosen = order[place * global_batch : (place + 1) * global_batch]
        return self._windows(self.train, _share(chosen, coordinate, num_parts))

    def validation_batch(
        self, index: int, *, global_batch: int, coordinate: int, num_parts: int
    ) -> Batch:
        """Return one share of validation batch `index`; the samples lie evenly apart."""
        total = (len(self.validation) - 1) // self.tokens_per_sample
        # Strides by the golden ratio spread any number of samples over the whole part.
        first = index * global_batch
        numbers = torch.arange(first, first + global_batch, dtype=torch.float64)
        chosen = ((numbers * 0.6180339887498949) % 1.0 * total).long()
        return self._windows(self.validation, _share(chosen, coordinate, num_parts))

    def _windows(self, tokens: torch.Tensor, samples: torch.Tensor) -> Batch:
        offsets = torch.arange(self.tokens_per_sample + 1)
        window = tokens[samples[:, None] * self.tokens_per_sample + offsets].long()
        return window[:, :-1].contiguous(), window[:, 1:].contiguous()


def _share(samples: torch.Tensor, coordinate: int, num_parts: int) -> torch.Tensor:
    """Cut samples into contiguous shares whose sizes differ by at most one."""
    return torch.tensor_split(samples, num_parts)[coordinate]


@functools.lru_cache(maxsize=2)
def _order(num_samples: int, seed: int, epoch: int) -> torch.Tensor:
    """Draw the order of one pass; kept, since every step of the pass asks for it."""
    text = f"{seed}/{epoch}".encode()
    mixed = int.from_bytes(hashlib.sha256(text).digest()[:7], "big")
    return torch.randperm(num_samples, generator=torch.Generator().manual_seed(mixed))


def bigram_loss(corpus: Corpus) -> float:
    """Return the validation loss of a bigram model, nats per token.

    Counts of the training part with one added to each, over the same split: what a
    model must beat to have learnt more than which byte follows which.
    """
    size = corpus.vocab_size
    pairs = corpus.train[:-1].long() * size + corpus.train[1:].long()
    counts = torch.bincount(pairs, minlength=size * size).reshape(size, size) + 1.0
    log_shares = (counts / counts.sum(1, keepdim=True)).log()
    held = corpus.validation.long()
    return -log_shares[held[:-1], held[1:]].mean().item()


def digest_of(files: Sequence[tuple[str, bytes]]) -> str:
    """Return a hash over names and contents, in the order given."""
    whole = hashlib.sha256()
    for name, content in files:
        whole.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return whole.hexdigest()
