"""A grid over the nodes of a Ray cluster."""

from lstm_bench.model.feature import Feature

FEATURE = Feature(doors={"options": "command:GRID"})
