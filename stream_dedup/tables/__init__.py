"""Table design: which bits of a fingerprint make up each table's key."""
