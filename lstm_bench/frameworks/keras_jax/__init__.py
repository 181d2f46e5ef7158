"""keras_jax."""
