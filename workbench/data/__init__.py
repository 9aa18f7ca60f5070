"""Embedded corpora, packing and loaders (torch)."""
