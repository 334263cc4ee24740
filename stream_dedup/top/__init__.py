"""The live view of ``stream-dedup top``: metrics read, turned into figures, and drawn."""
