"""The wrapped process group and its observers (torch)."""
