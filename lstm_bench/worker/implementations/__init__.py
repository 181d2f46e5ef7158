"""One file per framework, each with `describe(settings)` and `build(problem, row, settings)`."""
