"""The client half of a session: connect, cells, put and get."""
