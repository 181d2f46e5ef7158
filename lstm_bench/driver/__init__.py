"""Measures a plan: starts workers, asks them, watches the GPU, writes records."""
