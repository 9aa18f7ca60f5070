"""Embedded corpora, packing and loaders (torch)."""

from workbench.data.corpus import Batch, Corpus, bigram_loss
from workbench.data.sources import from_datasets, python_source, text_folder

__all__ = [
    "Batch",
    "Corpus",
    "bigram_loss",
    "from_datasets",
    "python_source",
    "text_folder",
]
