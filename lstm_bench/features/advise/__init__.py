"""Advises a row to run at a shape, with its gain, its cost and its code."""

from lstm_bench.model.feature import Feature

FEATURE = Feature(
    commands={
        "advise": ("command:advise", "What to run at a shape: the row, its gain, cost and code.")
    },
    api={"advise": "api:advise"},
    doors={"page_data": "on_page:on_page"},
)
