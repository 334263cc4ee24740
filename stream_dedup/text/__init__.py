"""From text to shingles, a batch at a time: normalise, tokenise, shingle."""
