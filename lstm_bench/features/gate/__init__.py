"""Fails where a new run is slower, larger or wrong than its base."""

from lstm_bench.model.feature import Feature

FEATURE = Feature(
    commands={"gate": ("command:gate", "Fail where a new run is slower, larger or wrong, for CI.")},
    api={"gate": "api:gate"},
)
