"""What runs under the framework's own Python: standard library, NumPy, one framework."""
