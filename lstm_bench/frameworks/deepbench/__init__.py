"""deepbench."""
