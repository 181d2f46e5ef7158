"""libtorch."""
