"""pytorch."""
