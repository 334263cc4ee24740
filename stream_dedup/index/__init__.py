"""Where originals are registered and found again."""
