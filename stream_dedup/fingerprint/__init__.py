"""From shingles to table keys and a sketch to verify with, a batch at a time."""
