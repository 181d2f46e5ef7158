"""NumPy: one product for the inputs of all steps, then one a step."""

from __future__ import annotations

from lstm_bench.model.framework import CPU, Cost, Framework

CODE = """\
import numpy as np
w_ih, w_hh, b_ih, b_hh = (p.detach().numpy() for p in lstm.parameters())
sigmoid = lambda v: 0.5 * np.tanh(0.5 * v) + 0.5
(h,), (c,), steps = h0.numpy(), c0.numpy(), []
for gates in x.numpy() @ w_ih.T + b_ih + b_hh:
    i, f, g, o = np.split(gates + h @ w_hh.T, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    steps.append(h)
output = np.stack(steps)"""

NUMPY = Framework(
    "numpy",  # implementations of one framework share a worker process
    ("numpy",),  # modules that must be importable
    ("numpy",),  # packages whose versions are recorded
    "pip install numpy",  # what to type where it is missing
    # All that follows may be left out.
    costs={"cpu": {"": Cost(call_s=5e-5, step_s=3e-5, rate=2e10, few=5.0)}},
    colour="#4d77cf",
    code=lambda row, device: CODE,
)
FRAMEWORKS = (NUMPY,)

ROWS = (
    NUMPY.row(
        "numpy",  # its name, as users type it
        "NumPy, a product for all inputs and one a step",
        "fp32",  # or "tf32", "fp16", "bf16", "int8", "amp": the tolerance of the check
        CPU,  # its devices; without them both
    ),
)
