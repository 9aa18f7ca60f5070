"""Memory and device sensors of one process."""
