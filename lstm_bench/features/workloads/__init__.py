"""The LSTM layers of real models, by the names that a grid gives to its shapes."""

from lstm_bench.model.feature import Feature

FEATURE = Feature(doors={"report": "command:workloads", "section": "report:on_page"})
