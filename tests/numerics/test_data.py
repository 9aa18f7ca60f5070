"""Batches are the same wherever they are made; no data is said in one sentence."""

import math
from pathlib import Path

import pytest
import torch

from workbench.data import (
    Corpus,
    bigram_loss,
    from_datasets,
    python_source,
    text_folder,
)
from workbench.errors import DataError


def numbered(num_samples: int) -> Corpus:
    tokens = torch.arange(num_samples * 4 + 1) % 251
    return Corpus(
        name="numbers",
        train=tokens,
        validation=tokens,
        tokens_per_sample=4,
        vocab_size=251,
        digest="",
        num_files=(1, 1),
    )


@pytest.mark.parametrize("num_parts", [1, 2, 3])
def test_shares_of_a_step_join_to_the_same_global_batch(num_parts: int) -> None:
    corpus = numbered(20)

    for step in range(6):
        whole = corpus.batch(
            seed=1, step=step, global_batch=8, coordinate=0, num_parts=1
        )
        parts = [
            corpus.batch(
                seed=1, step=step, global_batch=8, coordinate=part, num_parts=num_parts
            )
            for part in range(num_parts)
        ]
        assert torch.equal(torch.cat([inputs for inputs, _ in parts]), whole[0])
        assert torch.equal(torch.cat([targets for _, targets in parts]), whole[1])


def test_a_pass_sees_every_sample_once_and_ends_uneven() -> None:
    corpus = numbered(20)

    batches = [
        corpus.batch(seed=0, step=step, global_batch=8, coordinate=0, num_parts=1)[0]
        for step in range(3)
    ]

    assert [len(batch) for batch in batches] == [8, 8, 4]
    firsts = sorted(torch.cat(batches)[:, 0].tolist())
    assert firsts == [sample * 4 for sample in range(20)]


def test_targets_are_the_inputs_one_token_later() -> None:
    inputs, targets = numbered(20).batch(
        seed=0, step=0, global_batch=2, coordinate=0, num_parts=1
    )

    assert torch.equal(targets[:, :-1], inputs[:, 1:])


def test_passes_differ_and_the_seed_decides_them() -> None:
    corpus = numbered(64)

    def first_batch(seed: int, step: int) -> list[int]:
        batch = corpus.batch(
            seed=seed, step=step, global_batch=64, coordinate=0, num_parts=1
        )
        return batch[0][:, 0].tolist()

    assert first_batch(0, 0) == first_batch(0, 0)
    assert first_batch(0, 0) != first_batch(0, 1)
    assert first_batch(0, 0) != first_batch(1, 0)


def test_python_source_is_deterministic_and_split_by_file() -> None:
    first = python_source(tokens_per_sample=128)
    second = python_source(tokens_per_sample=128)

    assert first.digest == second.digest
    assert first.digest[:12] in repr(first)
    assert torch.equal(first.train, second.train)
    assert first.num_files[1] * 8 < first.num_files[0]
    assert len(first.validation) > 100_000


def test_a_bigram_of_uniform_noise_is_worth_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 16, (200_000,), generator=generator)
    corpus = Corpus(
        name="noise",
        train=noise[:100_000],
        validation=noise[100_000:],
        tokens_per_sample=8,
        vocab_size=16,
        digest="",
        num_files=(1, 1),
    )

    # 256 counts from 100 000 draws are off by 1 %, which costs about 1e-3 nats.
    assert bigram_loss(corpus) == pytest.approx(math.log(16), abs=5e-3)


def test_a_folder_of_text_is_read_as_bytes(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"{number}.txt").write_text(f"text {number} " * 20)

    corpus = text_folder(tmp_path, tokens_per_sample=16)

    assert corpus.num_files == (11, 1)
    assert corpus.vocab_size == 256


def test_rows_of_a_dataset_are_split_by_row() -> None:
    rows = [{"text": f"row {number} " * 20} for number in range(10)]

    corpus = from_datasets(rows, tokens_per_sample=16)

    assert corpus.num_files == (9, 1)


def test_an_empty_folder_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        text_folder(tmp_path, tokens_per_sample=16)

    assert str(tmp_path) in caught.value.message
    assert caught.value.hint is not None


def test_a_missing_folder_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        text_folder(tmp_path / "nowhere", tokens_per_sample=16)


def test_a_missing_column_is_refused_with_the_ones_there_are() -> None:
    with pytest.raises(DataError) as caught:
        from_datasets([{"body": "x"}], tokens_per_sample=16)

    assert caught.value.hint == "it has body"


def test_too_little_text_is_refused_with_both_numbers(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"{number}.txt").write_text("short")

    with pytest.raises(DataError, match="one sample needs 17"):
        text_folder(tmp_path, tokens_per_sample=16)
