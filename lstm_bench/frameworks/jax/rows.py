"""JAX: the cell in a `lax.scan`, or cuDNN's layer."""

from __future__ import annotations

from lstm_bench.frameworks.code import WEIGHTS, arrays
from lstm_bench.model.framework import CPU, CUDA, Cost, Framework
from lstm_bench.model.types import Implementation

STRICT = 'jax.config.update("jax_default_matmul_precision", "highest")  # not TF32\n'
_SCAN = """
@jax.jit
def fast(x, h, c):
    def step(state, at):
        h, c = state
        i, f, g, o = jnp.split(at + h @ w_hh.T, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h
    return jax.lax.scan(step, (h, c), x @ w_ih.T + b_ih + b_hh)

x, h0, c0 = (jnp.asarray(t.cpu().numpy()) for t in (x, h0[0], c0[0]))
(h, c), output = fast(x, h0, c0)"""
_CUDNN = """\
lengths = jnp.full(len(x), x.shape[1], jnp.int32)
output, h, c = rnn.lstm(
    x, h0[None], c0[None], weights, lengths, input_size=lstm.input_size,
    hidden_size=lstm.hidden_size, num_layers=1, dropout=0.0, bidirectional=False
)"""


def code(row: Implementation, device: str) -> str:
    """XLA's loop or cuDNN's layer."""
    start = "import jax\nimport jax.numpy as jnp\n"
    strict = "" if row.precision == "tf32" else STRICT
    if row.options.get("cudnn"):
        flat = "[p.detach().cpu().numpy().ravel() for p in lstm.parameters()]"
        start += f"from jax.experimental import rnn\n{strict}weights = jnp.concatenate({flat})\n"
        return start + arrays("jnp.asarray") + _CUDNN
    numpy = "p.detach().cpu().numpy()"
    return start + strict + WEIGHTS.replace(numpy, f"jnp.asarray({numpy})") + _SCAN


JAX = Framework(
    "jax",
    ("jax", "numpy"),
    ("jax", "jaxlib"),
    "pip install jax, on a GPU 'jax[cuda13]'",
    costs={
        "cpu": {"": Cost(2e-4, 5e-6, 4e10, 5.0, 0.2)},
        "cuda": {
            "jax-scan": Cost(2e-4, 8e-6, 3.4e13, 0.1, 5.0),
            "jax-scan-tf32": Cost(1.6e-4, 7.3e-6, 1.7e14, 22.0, 0.9),
            "jax-cudnn": Cost(3e-4, 1.2e-5, 3.2e13, 10.0, 0.1),
        },
    },
    start_s=(0.8, 3.0),
    colour="#762a83",
    code=code,
)
FRAMEWORKS = (JAX,)

ROWS = (
    JAX.row("jax-scan", "lax.scan of the cell, compiled by XLA", default_on=CPU),
    JAX.row("jax-scan-tf32", "the same with TF32 allowed", "tf32", CUDA, default_on=CUDA),
    JAX.row("jax-cudnn", "jax.experimental.rnn.lstm", "fp32", CUDA, cudnn=True),
)
