"""What the calls of a cell are made of: kernels, copies, launches, operators."""

from lstm_bench.model.feature import Feature

FEATURE = Feature(
    commands={
        "profile": ("command:profile", "Take the calls of one implementation at one shape apart."),
    },
    api={"profiles": "api:profiles"},
    doors={
        "column-ladder": "report:why_slower",
        "figure": "figures:drawn",
        "report": "command:kernels",
        "section": "report:document",
    },
)
