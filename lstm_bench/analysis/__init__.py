"""What runs say, as pure functions on data frames."""
