"""One file per framework: `describe(settings)`, `build(problem, row, settings)` and `OPTIONS`."""
