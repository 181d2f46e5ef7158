"""The LSTMs of a model of yours: what each takes, and what it and the model would gain."""

from lstm_bench.model.feature import Feature

FEATURE = Feature(
    commands={
        "model": ("command:model", "What the LSTMs of your PyTorch model take, and would gain.")
    },
    api={"layers": "in_worker:layers"},
)
