"""The HTTP service: asks an index about texts, and never writes. Needs ``stream-dedup[serve]``."""
