"""Finds the first version of a framework that is slower."""

from lstm_bench.model.feature import Feature

FEATURE = Feature(
    commands={
        "bisect": ("command:bisect", "Find the first version of a framework that is slower."),
    },
    api={"bisect": "api:bisect"},
)
