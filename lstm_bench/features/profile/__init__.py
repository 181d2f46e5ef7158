"""Takes the calls of a cell apart: kernels, copies, launches, operators."""

from lstm_bench.model.feature import Feature

FEATURE = Feature(
    commands={
        "profile": ("command:profile", "Take the calls of one implementation at one shape apart."),
    },
    api={"profiles": "api:profiles"},
    doors={
        "column-ladder": "report:why_slower",
        "figure": "figures:drawn",
        "follow_up": "follow_up:ProfileFollowUp",
        "reply": "follow_up:REPLIES",
        "report": "command:kernels",
        "request": "in_worker:REQUESTS",
        "section": "report:document",
    },
)
