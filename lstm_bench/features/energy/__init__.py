"""Energy per call, power, clocks and temperature of a GPU."""

from lstm_bench.model.feature import Feature

FEATURE = Feature(
    doors={
        "column-machines": "cells:of_machine",
        "report": "command:energy",
        "section": "report:on_page",
    }
)
