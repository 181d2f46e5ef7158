"""The types and words that all rooms share; needs the standard library only."""
