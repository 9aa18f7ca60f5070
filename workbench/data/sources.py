"""Where a corpus comes from: Python's own source, a folder of text, a dataset."""

import hashlib
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from workbench.data.corpus import Corpus, digest_of
from workbench.errors import DataError

#: Not part of every installation of the same Python, so left out of the corpus.
_SKIPPED = frozenset(
    {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"}
)
#: One file in this many is held out for validation.
_HELD_OUT_EVERY = 10
_BYTES = 256


def python_source(*, tokens_per_sample: int) -> Corpus:
    """Return the standard library's own source files as bytes: real text, no download.

    The files are those of the running interpreter, in the order of their paths.

    Raises:
        DataError: The interpreter has no source files on disk.
    """
    root = Path(sysconfig.get_path("stdlib"))
    return _corpus(
        f"python-{sysconfig.get_python_version()}-source",
        _files(root, "**/*.py"),
        tokens_per_sample,
        place=str(root),
    )


def text_folder(
    path: str | Path, *, tokens_per_sample: int, pattern: str = "**/*.txt"
) -> Corpus:
    """Return the files of a folder as bytes, split by file.

    Args:
        path: The folder.
        tokens_per_sample: Inputs of one sample.
        pattern: Which files, as a glob below the folder.

    Raises:
        DataError: No such folder, or fewer than two files with text in it.
    """
    root = Path(path)
    if not root.is_dir():
        raise DataError(f"{root} is not a folder", hint="give the folder, not a file")
    return _corpus(
        root.name,
        _files(root, pattern),
        tokens_per_sample,
        place=f"{root} with pattern {pattern!r}",
    )


def from_datasets(
    dataset: Iterable[Any], *, tokens_per_sample: int, column: str = "text"
) -> Corpus:
    """Return the rows of a Hugging Face `datasets` object as bytes, split by row.

    Args:
        dataset: Gives mappings, e.g. `load_dataset(...)["train"]`.
        tokens_per_sample: Inputs of one sample.
        column: The column that holds the text.

    Raises:
        DataError: No such column, or fewer than two rows with text in it.
    """
    return _corpus(
        "dataset",
        _rows(dataset, column),
        tokens_per_sample,
        place=f"column {column!r} of the dataset",
    )


def _files(root: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    for path in sorted(root.glob(pattern), key=lambda path: path.as_posix()):
        relative = path.relative_to(root)
        if path.is_file() and not _SKIPPED.intersection(relative.parts):
            yield relative.as_posix(), path.read_bytes()


def _rows(dataset: Iterable[Any], column: str) -> Iterator[tuple[str, bytes]]:
    for number, row in enumerate(dataset):
        if column not in row:
            raise DataError(
                f"the dataset has no column {column!r}",
                hint=f"it has {', '.join(sorted(row))}",
            )
        yield str(number), str(row[column]).encode()


def _corpus(
    name: str,
    files: Iterable[tuple[str, bytes]],
    tokens_per_sample: int,
    *,
    place: str,
) -> Corpus:
    full = [(name, content) for name, content in files if content]
    if len(full) < 2:
        raise DataError(
            f"found {len(full)} files with text in {place}, training and validation "
            "need one each",
            hint="check the path and the pattern",
        )
    held = _held_out([name for name, _ in full])
    train = b"\n".join(content for name, content in full if name not in held)
    validation = b"\n".join(content for name, content in full if name in held)
    return Corpus(
        name=name,
        train=torch.frombuffer(bytearray(train), dtype=torch.uint8),
        validation=torch.frombuffer(bytearray(validation), dtype=torch.uint8),
        tokens_per_sample=tokens_per_sample,
        vocab_size=_BYTES,
        digest=digest_of(full),
        num_files=(len(full) - len(held), len(held)),
    )


def _held_out(names: list[str]) -> frozenset[str]:
    """Choose the validation files by a hash of their names, at least one and not all."""
    ranked = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    return frozenset(ranked[: max(1, len(names) // _HELD_OUT_EVERY)])
