"""lstm-bench: what one LSTM layer costs, by every implementation, checked and beside its noise."""

__version__ = "0.1.0"
