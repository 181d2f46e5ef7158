"""persistent."""
