"""The code that runs under a framework's own Python; it needs NumPy and that framework alone."""
