"""Energy per call, power, clocks and temperature of a GPU."""

from lstm_bench.model.feature import Feature

FEATURE = Feature(
    doors={
        "column-machines": "cells:of_machine",
        "follow_up": "follow_up:EnergyFollowUp",
        "reply": "measure:REPLIES",
        "report": "command:energy",
        "request": "in_worker:REQUESTS",
        "section": "report:on_page",
    },
)
