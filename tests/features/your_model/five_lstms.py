"""A model with an LSTM of every kind: called twice, packed, scripted, and never called."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.ModuleList([nn.LSTM(16, 12)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for cell in self.cells:
            x, _ = cell(x)
        return x


class Five(nn.Module):
    def __init__(self):
        super().__init__()
        unlike = nn.LSTM(16, 16, batch_first=True), nn.LSTM(16, 24, 2, bidirectional=True)
        self.layers = nn.ModuleList(unlike)
        self.packed = nn.LSTM(16, 20)
        self.scripted = torch.jit.script(Scripted())
        self.idle = nn.LSTM(8, 12)

    def forward(self, x, lengths):
        y, state = self.layers[0](x)
        y, _ = self.layers[0](y, hx=state)
        x = pack_padded_sequence(x, lengths, batch_first=True)
        packed, _ = self.packed(x, (torch.zeros(1, 3, 20), torch.zeros(1, 3, 20)))
        z, _ = self.layers[1](y.transpose(0, 1))
        return z, {"packed": packed, "scripted": self.scripted(y.transpose(0, 1))}


def build():
    torch.manual_seed(1)
    print("building")  # it must not stand in the answer
    return Five(), (torch.randn(3, 20, 16), torch.tensor([20, 12, 7]))


def without_lstm():
    return nn.Sequential(nn.GRU(3, 3)), (torch.zeros(1, 1, 3),)


class Idle(Five):
    def forward(self, x):
        return x


def never_called():
    return Idle(), (torch.zeros(1),)


def raising():
    return Five(), (torch.zeros(3, 20, 5), torch.tensor([20, 12, 7]))


def no_tuple():
    return Five(), torch.zeros(3)


class Streaming(nn.Module):
    """Keeps its state from pass to pass, as what listens to a stream does."""

    def __init__(self):
        super().__init__()
        self.lstm, self.state = nn.LSTM(4, 6), None

    def forward(self, x):
        for size in (1, 1, 5):
            y, self.state = self.lstm(x[:size], self.state)
        return y


class Projected(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.LSTM(4, 6, proj_size=2), nn.LSTM(4, 6).double()

    def forward(self, x):
        return self.one(x), self.other(x.double())


def unlike_any_row():
    return Projected(), (torch.zeros(2, 3, 4),)
