"""keras_torch."""
