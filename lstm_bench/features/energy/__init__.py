"""Energy per call, power, clocks and temperature of a GPU."""

from lstm_bench.model.feature import Feature

FEATURE = Feature(
    doors={
        "follow_up": "follow_up:EnergyFollowUp",
        "reply": "measure:REPLIES",
        "request": "in_worker:REQUESTS",
    },
)
