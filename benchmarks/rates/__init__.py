"""Error laws and their constants."""
