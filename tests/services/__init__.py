"""Real servers for tests: at a given address, in Docker, or as local processes (in this order)."""
