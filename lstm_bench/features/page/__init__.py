"""A run as one HTML file, which needs nothing else."""

from lstm_bench.model.feature import Feature

FEATURE = Feature(doors={"page": "page:html"})
