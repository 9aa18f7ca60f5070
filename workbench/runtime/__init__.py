"""The other half of a session: host, supervisor, zygote, ranks."""
