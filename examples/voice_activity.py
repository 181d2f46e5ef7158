"""Voice activity, 32 ms of sound at a time: PyTorch, ONNX Runtime and our kernels on a CPU.

    python examples/voice_activity.py [--chunks 200] [--threads 1] [--weights FILE.pt]

The layers are those of Silero VAD at 16 kHz: a spectrum by convolution, four convolutions, one LSTM
of 128 units whose states are carried from chunk to chunk, and the probability of speech. Weights
are random unless `--weights` names a state_dict; names of the public model fit. Prints the median
latency of a chunk and of its LSTM, for one stream and for 64, and how far probabilities are apart.
ONNX Runtime takes part where onnx and onnxruntime are installed.
"""

from __future__ import annotations

import argparse
import io
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

import lstm_kernels

CHUNK, CONTEXT = 512, 64  # samples: 32 ms, and the end of the chunk before
State = tuple[torch.Tensor, torch.Tensor]
Step = Callable[[torch.Tensor, State], tuple[torch.Tensor, State]]


class VoiceActivity(torch.nn.Module):  # type: ignore[misc]
    """Sound and states in, the probability of speech and the next states out."""

    def __init__(self) -> None:
        super().__init__()
        conv = torch.nn.Conv1d
        self.stft_conv = conv(1, 258, 256, stride=128, bias=False)
        self.conv1, self.conv2 = conv(129, 128, 3, padding=1), conv(128, 64, 3, stride=2, padding=1)
        self.conv3, self.conv4 = conv(64, 64, 3, stride=2, padding=1), conv(64, 128, 3, padding=1)
        self.lstm = torch.nn.LSTM(128, 128)
        self.final_conv = conv(128, 1, 1)

    def forward(
        self, sound: torch.Tensor, h: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = torch.nn.functional.pad(sound, (0, CONTEXT), mode="reflect")
        x = self.stft_conv(x.unsqueeze(1))
        x = (x[:, :129] ** 2 + x[:, 129:] ** 2).sqrt()
        for layer in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = layer(x).relu()
        y, (h, c) = self.lstm(x.permute(2, 0, 1), (h, c))
        probability = self.final_conv(y.permute(1, 2, 0).relu()).sigmoid()
        return probability.mean(dim=(1, 2)), h, c


def load(model: VoiceActivity, path: str) -> None:
    """Weights by name; an LSTMCell's are those of the layer."""
    given = torch.load(path, weights_only=True)
    renamed = {name.replace("lstm_cell.", "lstm."): value for name, value in given.items()}
    for name in list(renamed):
        if name.startswith("lstm.") and not name.endswith("_l0"):
            renamed[f"{name}_l0"] = renamed.pop(name)
    model.load_state_dict(renamed)


def in_pytorch(model: VoiceActivity) -> Step:
    def step(sound: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        probability, h, c = model(sound, *state)
        return probability, (h, c)

    return step


def in_onnx_runtime(model: Any, inputs: tuple[Any, ...], threads: int) -> Step:
    """A model, or the LSTM alone, as it runs there."""
    import onnxruntime

    file = io.BytesIO()
    names = {"input_names": ["sound", "h", "c"], "output_names": ["probability", "h1", "c1"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, inputs, file, dynamo=False, **names)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file.getvalue(), options)

    def step(sound: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        arrays = {"sound": sound.numpy(), "h": state[0].numpy(), "c": state[1].numpy()}
        probability, h, c = (torch.from_numpy(array) for array in session.run(None, arrays))
        return probability, (h, c)

    return step


def watched(step: Step, chunks: list[torch.Tensor], state: State) -> tuple[float, torch.Tensor]:
    """Microseconds of a chunk, the median, and the probabilities of all."""
    took, probabilities = [], []
    for sound in chunks:
        start = time.perf_counter()
        probability, state = step(sound, state)
        took.append(time.perf_counter() - start)
        probabilities.append(probability)
    return statistics.median(took[len(took) // 10 :]) * 1e6, torch.stack(probabilities)


def of_lstm(layer: Any, streams: int, steps: int) -> float:
    """Microseconds of a step of the layer alone, the median."""
    x = torch.randn(1, streams, 128)
    state = torch.zeros(1, streams, 128), torch.zeros(1, streams, 128)
    took = []
    for _ in range(steps):
        start = time.perf_counter()
        _, state = layer(x, state)
        took.append(time.perf_counter() - start)
    return statistics.median(took) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunks", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--weights")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(1)
    model = VoiceActivity().eval()
    if chosen.weights:
        load(model, chosen.weights)
    print(f"{'streams':>7}  {'by':16}  {'chunk, us':>9}  {'LSTM, us':>8}  apart")
    with torch.inference_mode():
        for streams in (1, 64):
            signal = torch.randn(streams, CONTEXT + chosen.chunks * CHUNK)
            starts = range(0, chosen.chunks * CHUNK, CHUNK)
            chunks = [signal[:, at : at + CONTEXT + CHUNK].contiguous() for at in starts]
            state = torch.zeros(1, streams, 128), torch.zeros(1, streams, 128)
            lstm_kernels.restore(model)
            ways: dict[str, Step] = {"PyTorch": in_pytorch(model)}
            try:
                inputs: tuple[Any, ...] = (chunks[0], *state)
                ways["ONNX Runtime"] = in_onnx_runtime(model, inputs, chosen.threads)
                inputs = torch.zeros(1, streams, 128), state
                layer_there: Any = in_onnx_runtime(model.lstm, inputs, chosen.threads)
            except ImportError as missing:
                print(f"without ONNX Runtime: {missing}")
            ways["ours"] = in_pytorch(model)
            expected = None
            for name, step in ways.items():
                if name == "ours":
                    lstm_kernels.replace(model, quiet=True)
                chunk_us, probabilities = watched(step, chunks, state)
                expected = probabilities if expected is None else expected
                layer = layer_there if name == "ONNX Runtime" else model.lstm
                alone = of_lstm(layer, streams, chosen.chunks)
                apart = float((probabilities - expected).abs().max())
                print(f"{streams:7}  {name:16}  {chunk_us:9.0f}  {alone:8.0f}  {apart:.0e}")
        print(f"ours: {model.lstm.explain(torch.zeros(1, 64, 128), state)}")


if __name__ == "__main__":
    main()
