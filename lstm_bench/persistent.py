"""Our kernels as a drop-in for `torch.nn.LSTM`, which are `lstm_kernels` now: this name stays."""

from lstm_kernels.lstm import LSTM as LSTM
