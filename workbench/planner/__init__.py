"""WHICH layout, and why not the others: predictions before anything starts."""
