"""What a machine can do at best, and how far the times are from it."""

from lstm_bench.model.feature import Feature

FEATURE = Feature(doors={"around_run": "measure:around_run", "doctor": "command:DOCTOR"})
