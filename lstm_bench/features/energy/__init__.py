"""Energy per call, power, clocks and temperature of a GPU."""

from lstm_bench.model.feature import Feature

FEATURE = Feature(doors={"section": "report:on_page"})
