"""lstm_kernels."""
