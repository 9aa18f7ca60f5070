"""the messages between notebook, session host, worker and rank."""
