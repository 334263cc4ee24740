"""The review page: shows people what was decided. Needs ``stream-dedup[review]``."""
