"""The commands of `lstm-bench`: the only files that print and exit."""
