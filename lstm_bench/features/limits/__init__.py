"""The limits of a machine, and how far the times are from them."""

from lstm_bench.model.feature import Feature

FEATURE = Feature(
    doors={
        "around_run": "measure:around_run",
        "column-summary": "report:in_summary",
        "doctor": "command:DOCTOR",
        "figure": "figure:drawn",
        "section": "report:on_page",
    }
)
