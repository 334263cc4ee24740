"""Verify candidates: what is kept with each original, and the measures computed from it."""
