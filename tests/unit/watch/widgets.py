"""Listening to what a widget sends."""


def listen(widget):
    """Return a list that fills with (message, buffers) from now on."""
    sent = []
    widget.send = lambda message, buffers=None: sent.append((message, buffers))
    return sent
