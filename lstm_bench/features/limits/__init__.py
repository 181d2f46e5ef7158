"""What a machine can do at best, and how far the times are from it."""

from lstm_bench.model.feature import Feature

FEATURE = Feature(
    doors={
        "column-summary": "report:in_summary",
        "figure": "figure:drawn",
        "section": "sections:document",
    }
)
