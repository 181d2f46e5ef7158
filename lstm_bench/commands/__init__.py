"""The commands of `lstm-bench`: they print and exit, the modules that they use do not."""
