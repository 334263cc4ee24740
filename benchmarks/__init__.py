"""Benchmarks: every figure that the project states, as a command. See README.md."""
