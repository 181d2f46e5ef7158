"""A speaker segmenter with random weights, before and after `lstm_kernels.replace`.

    python examples/segmenter.py [--device cuda] [--batch 32] [--seconds 10]

Like pyannote's: features of sound, 60 at a time, through four LSTM layers of 128 in both
directions, then two linear layers. Prints what was replaced, the model's latency both ways (the
median of 20 calls) and how far its outputs are apart. Where the kernels do not take the calls it
says why.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

import lstm_kernels

FRAMES = 58.9  # a second of sound


class Segmenter(torch.nn.Module):
    """Which of seven combinations of speakers is heard, frame by frame."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(60, 128, num_layers=4, bidirectional=True, batch_first=True)
        self.linear = torch.nn.Sequential(
            *(torch.nn.Linear(256, 128), torch.nn.LeakyReLU()),
            *(torch.nn.Linear(128, 128), torch.nn.LeakyReLU()),
        )
        self.classifier = torch.nn.Linear(128, 7)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs, _ = self.lstm(features)
        scores: torch.Tensor = self.classifier(self.linear(outputs)).log_softmax(-1)
        return scores


def latency_ms(model: torch.nn.Module, features: torch.Tensor) -> float:
    """The median of 20 calls after three."""
    took = []
    for _ in range(23):
        start = time.perf_counter()
        model(features)
        if features.is_cuda:
            torch.cuda.synchronize()
        took.append(time.perf_counter() - start)
    return statistics.median(took[3:]) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=10.0)
    chosen = parser.parse_args()
    torch.manual_seed(1)
    model = Segmenter().eval().to(chosen.device)
    frames = round(chosen.seconds * FRAMES)
    features = torch.randn(chosen.batch, frames, 60, device=chosen.device)
    with torch.inference_mode():
        before, expected = latency_ms(model, features), model(features)
        lstm_kernels.replace(model)
        path = model.lstm.explain(features)  # compiles and chooses, unless an earlier process has
        print(f"runs on    {path}")
        if not path.startswith("kernels: "):
            print(f"latency    {before:.2f} ms, as before: nn.LSTM itself takes these calls.")
            return
        after, got = latency_ms(model, features), model(features)
        print(f"runs on    {model.lstm.explain(features)}")
    lstm_kernels.synchronize()
    print(f"latency    {before:.2f} ms before, {after:.2f} ms after: {before / after:.1f}x faster")
    print(f"apart      {float((got - expected).abs().max()):.1e}")


if __name__ == "__main__":
    main()
