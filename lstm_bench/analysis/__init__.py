"""Analyses of runs, as pure functions on data frames."""
