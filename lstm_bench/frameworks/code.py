"""Lines of code that the snippets of several frameworks share.

All snippets start from `lstm`, a trained `torch.nn.LSTM` of one layer, and from tensors `x`
(T, B, I) and `h0`, `c0` (1, B, H) on the row's device. `output` is (T, B, H); with Keras and
`jax-cudnn` it is (B, T, H), as they have it.
"""

from __future__ import annotations

from lstm_bench.model.types import Implementation

WEIGHTS = "w_ih, w_hh, b_ih, b_hh = (p.detach().cpu().numpy() for p in lstm.parameters())\n"
KERAS = (
    WEIGHTS
    + """\
layer = keras.layers.LSTM(
    lstm.hidden_size,
{options}    return_sequences=True,
    return_state=True,
)
layer.build((x.shape[1], x.shape[0], x.shape[2]))
layer.set_weights([w_ih.T, w_hh.T, b_ih + b_hh])
"""
)


def arrays(function: str) -> str:
    """The inputs as (B, T, I) and (B, H), each made by `function` from an array of NumPy."""
    return f"x, h0, c0 = ({function}(t.cpu().numpy()) for t in (x.transpose(0, 1), h0[0], c0[0]))\n"


def half(row: Implementation, device: str) -> str:
    """The type that AMP casts to: the row's, else what a device can be counted on for."""
    known = {"amp-fp16": "float16", "amp-bf16": "bfloat16"}
    return known.get(row.precision, "float16" if device == "cuda" else "bfloat16")
