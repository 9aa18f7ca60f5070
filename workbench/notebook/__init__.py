"""The IPython side: extension, magics, views."""
