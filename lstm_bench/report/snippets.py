"""The few lines of code that run each deployable row, from an `nn.LSTM` to its output.

All of them start from `lstm`, a trained `torch.nn.LSTM` of one layer, and from tensors `x`
(T, B, I) and `h0`, `c0` (1, B, H) on the row's device. `output` is (T, B, H); with Keras and
`jax-cudnn` it is (B, T, H), as they have it.
"""

from __future__ import annotations

from lstm_bench.model.types import Implementation

_CALL = "output, (h, c) = lstm(x, (h0, c0))"
_INFERENCE = f"with torch.inference_mode():\n    {_CALL}"
_STRICT = 'torch.backends.cudnn.rnn.fp32_precision = "ieee"  # the default is TF32'
_WEIGHTS = "w_ih, w_hh, b_ih, b_hh = (p.detach().cpu().numpy() for p in lstm.parameters())"
_ARRAYS = "x, h0, c0 = ({of}(t.cpu().numpy()) for t in (x.transpose(0, 1), h0[0], c0[0]))"
_AMP = "with torch.inference_mode(), torch.autocast({device!r}, dtype=torch.{half}):\n    " + _CALL

#: PyTorch's own ways, by `row.options["way"]`; `lstm` is in the row's precision by then.
_TORCH = {
    "": _INFERENCE,
    "graph": (
        "with torch.inference_mode():\n"
        "    with torch.cuda.stream(torch.cuda.Stream()):\n"
        "        for _ in range(3):  # libraries choose and allocate\n"
        "            lstm(x, (h0, c0))\n"
        "    torch.cuda.synchronize()\n"
        "    graph = torch.cuda.CUDAGraph()\n"
        "    with torch.cuda.graph(graph):\n"
        "        output, (h, c) = lstm(x, (h0, c0))\n"
        "graph.replay()  # then x.copy_(the next input), replay, read output"
    ),
    "compile": (
        "import torch._dynamo\n"
        "torch._dynamo.config.allow_rnn = True  # else it runs as it is, without a word\n"
        "fast = torch.compile(lstm{mode})\n"
        "with torch.inference_mode():\n"
        "    output, (h, c) = fast(x, (h0, c0))"
    ),
    "script": (
        "class Layer(torch.nn.Module):  # a bare nn.LSTM cannot be scripted\n"
        "    def __init__(self, lstm: torch.nn.LSTM):\n"
        "        super().__init__()\n"
        "        self.lstm = lstm\n"
        "    def forward(self, x: torch.Tensor, h0: torch.Tensor, c0: torch.Tensor):\n"
        "        return self.lstm(x, (h0, c0))\n"
        "\n"
        "fast = torch.jit.script(Layer(lstm).eval())\n"
        "with torch.inference_mode():\n"
        "    output, (h, c) = fast(x, h0, c0)"
    ),
    "trace": (
        "with torch.inference_mode():\n"
        "    fast = torch.jit.trace(lstm, (x, (h0, c0)))\n"
        "    output, (h, c) = fast(x, (h0, c0))"
    ),
    "persistent": (
        "from lstm_kernels import LSTM  # pip install ./lstm_kernels, in a checkout of lstm-bench\n"
        "fast = LSTM.like(lstm, {precision!r})  # the first call ever compiles for seconds\n"
        "output, (h, c) = fast(x, (h0, c0))"
    ),
    "native": "torch.backends.mkldnn.enabled = False  # of the whole process\n" + _INFERENCE,
    "int8": (
        "# on ARM first: torch.backends.quantized.engine = 'qnnpack'\n"
        "model = torch.nn.Sequential(lstm)\n"
        "model = torch.ao.quantization.quantize_dynamic(model, {{torch.nn.LSTM}}, torch.qint8)\n"
        "with torch.inference_mode():\n"
        "    output, (h, c) = model[0](x, (h0, c0))"
    ),
}

_KERAS = (
    f"{_WEIGHTS}\n"
    "layer = keras.layers.LSTM(\n"
    "    lstm.hidden_size,\n{options}"
    "    return_sequences=True,\n"
    "    return_state=True,\n"
    ")\n"
    "layer.build((x.shape[1], x.shape[0], x.shape[2]))\n"
    "layer.set_weights([w_ih.T, w_hh.T, b_ih + b_hh])\n"
)
_TENSORFLOW = (
    "import keras\nimport tensorflow as tf\n{setting}"
    + _KERAS
    + _ARRAYS.replace("{of}", "tf.constant")
    + "\ncall = lambda x, h, c: layer(x, initial_state=[h, c], training=False)\n"
    "fast = tf.function(call{xla})\n"
    "output, h, c = fast(x, h0, c0)"
)
_ONNX = (
    "import onnxruntime as ort\n"
    'names = {{"input_names": ["x", "h0", "c0"], "output_names": ["output", "h", "c"]}}\n'
    'torch.onnx.export(lstm, (x, (h0, c0)), "lstm.onnx", dynamo=False, **names)\n'
    "{more}"
    "provider = {provider}\n"
    'session = ort.InferenceSession("{file}", providers=[provider])\n'
    'feed = {{"x": x.cpu().numpy(), "h0": h0.cpu().numpy(), "c0": c0.cpu().numpy()}}\n'
)
_ONNX_CALL = "output, h, c = session.run(None, feed)"
_ONNX_BOUND = (
    "binding = session.io_binding()  # inputs and outputs stay on the GPU\n"
    "for name, array in feed.items():\n"
    '    value = ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0)\n'
    "    binding.bind_ortvalue_input(name, value)\n"
    'for name in ("output", "h", "c"):\n'
    '    binding.bind_output(name, "cuda")\n'
    "session.run_with_iobinding(binding)\n"
    "output, h, c = binding.copy_outputs_to_cpu()"
)
_INT8_FILE = (
    "from onnxruntime.quantization import quantize_dynamic\n"
    "# on x86 without VNNI with reduce_range=True: sums of products would be cut off\n"
    'quantize_dynamic("lstm.onnx", "int8.onnx")\n'
)
_CUDA_PROVIDER = '("CUDAExecutionProvider", {"use_tf32": "0"})'
_OPENVINO = (
    "import openvino as ov\n"
    'torch.onnx.export(lstm, (x, (h0, c0)), "lstm.onnx", dynamo=False)\n'
    'hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}\n'
    'fast = ov.Core().compile_model("lstm.onnx", "CPU", hints)\n'
    "output, h, c = fast([x.numpy(), h0.numpy(), c0.numpy()]).values()"
)
_JAX_PRECISION = 'jax.config.update("jax_default_matmul_precision", "highest")  # not TF32\n'
_JAX_SCAN = (
    "import jax\nimport jax.numpy as jnp\n{strict}"
    + _WEIGHTS.replace("(p.detach().cpu().numpy()", "(jnp.asarray(p.detach().cpu().numpy())")
    + "\n\n@jax.jit\ndef fast(x, h, c):\n"
    "    def step(state, at):\n"
    "        h, c = state\n"
    "        i, f, g, o = jnp.split(at + h @ w_hh.T, 4, axis=1)\n"
    "        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)\n"
    "        h = jax.nn.sigmoid(o) * jnp.tanh(c)\n"
    "        return (h, c), h\n"
    "    return jax.lax.scan(step, (h, c), x @ w_ih.T + b_ih + b_hh)\n"
    "\n"
    "x, h0, c0 = (jnp.asarray(t.cpu().numpy()) for t in (x, h0[0], c0[0]))\n"
    "(h, c), output = fast(x, h0, c0)"
)
_JAX_CUDNN = (
    "import jax\nimport jax.numpy as jnp\nfrom jax.experimental import rnn\n"
    + _JAX_PRECISION
    + "weights = jnp.concatenate([p.detach().cpu().numpy().ravel() for p in lstm.parameters()])\n"
    + _ARRAYS.replace("{of}", "jnp.asarray")
    + "\nlengths = jnp.full(len(x), x.shape[1], jnp.int32)\n"
    "output, h, c = rnn.lstm(\n"
    "    x, h0[None], c0[None], weights, lengths, input_size=lstm.input_size,\n"
    "    hidden_size=lstm.hidden_size, num_layers=1, dropout=0.0, bidirectional=False\n"
    ")"
)
_KERAS_TORCH = (
    'import os\nos.environ["KERAS_BACKEND"] = "torch"\nimport keras\n{strict}'
    + _KERAS
    + "with torch.inference_mode():\n"
    "    state = [h0[0], c0[0]]\n"
    "    output, h, c = layer(x.transpose(0, 1), initial_state=state, training=False)"
)
_KERAS_JAX = (
    'import os\nos.environ["KERAS_BACKEND"] = "jax"\n'
    "import jax\nimport jax.numpy as jnp\nimport keras\n{strict}"
    + _KERAS
    + "weights = [v.value for v in layer.trainable_variables]\n"
    "others = [v.value for v in layer.non_trainable_variables]\n"
    "fast = jax.jit(lambda x, h, c: layer.stateless_call(\n"
    "    weights, others, x, initial_state=[h, c], training=False)[0])\n"
    + _ARRAYS.replace("{of}", "jnp.asarray")
    + "\noutput, h, c = fast(x, h0, c0)"
)
_LIBTORCH = (
    "// C++; weights from Python by torch.jit.save or torch::load\n"
    "torch::nn::LSTM lstm(torch::nn::LSTMOptions(input_size, hidden_size));\n"
    "lstm->to({device});\n"
    "torch::InferenceMode guard;{strict}\n"
    "auto [output, state] = lstm->forward(x, std::make_tuple(h0, c0));"
)
_LIBTORCH_STRICT = "\nat::globalContext().setAllowTF32CuDNN(false);  // the default is TF32"
_APEX = (
    "from apex import amp  # NVIDIA/apex at e13873d, the last that has it\n"
    'lstm = amp.initialize(lstm, opt_level="O1", verbosity=0)\n'
    f"{_INFERENCE}"
)


def snippet(row: Implementation, device: str = "cpu") -> str:
    """The code of a row on a device; empty for one that no program can use, such as `fake`.

    The precision of a row with AMP may be the one that a run recorded, as `amp-bf16`.
    """
    if row.framework == "pytorch":
        code = _torch(row, device)
    elif row.framework == "tensorflow":
        code = _tensorflow(row, device)
    elif row.framework == "onnxruntime":
        int8, cuda = row.precision == "int8", device == "cuda"
        provider = _CUDA_PROVIDER if cuda else '"CPUExecutionProvider"'
        file, more = ("int8.onnx", _INT8_FILE) if int8 else ("lstm.onnx", "")
        more += "ort.preload_dlls()\n" if cuda else ""
        code = _ONNX.format(more=more, file=file, provider=provider)
        code += _ONNX_BOUND if cuda else _ONNX_CALL
    elif row.framework == "libtorch":
        strict = _LIBTORCH_STRICT if device == "cuda" and row.precision == "fp32" else ""
        place = "torch::kCUDA" if device == "cuda" else "torch::kCPU"
        code = _LIBTORCH.format(device=place, strict=strict)
    elif row.name.startswith("jax-scan"):
        code = _JAX_SCAN.format(strict="" if row.precision == "tf32" else _JAX_PRECISION)
    else:
        cuda = device == "cuda"
        on_torch = _KERAS_TORCH.format(options="", strict=f"{_STRICT}\n" if cuda else "")
        on_jax = _KERAS_JAX.format(options="", strict=_JAX_PRECISION if cuda else "")
        others = {"jax": _JAX_CUDNN, "keras-torch": on_torch, "keras-jax": on_jax}
        code = {**others, "openvino": _OPENVINO, "apex": _APEX}.get(row.framework, "")
    if code and row.threads:
        torch = row.framework == "pytorch"
        own = f"torch.set_num_threads({row.threads})" if torch else f"# CPU threads: {row.threads}"
        code = f"{own}\n{code}"
    return code


def _half(row: Implementation, device: str) -> str:
    """What mixed precision casts to: as the row says, else what a device can be counted on for."""
    known = {"amp-fp16": "float16", "amp-bf16": "bfloat16"}
    return known.get(row.precision, "float16" if device == "cuda" else "bfloat16")


def _torch(row: Implementation, device: str) -> str:
    lines = []
    if device == "cuda" and row.precision == "fp32" and row.options.get("way") != "persistent":
        lines.append(_STRICT)
    half = {"fp16": "half", "bf16": "bfloat16"}.get(row.precision)
    if half:
        lines.append(f"lstm, x, h0, c0 = (t.{half}() for t in (lstm, x, h0, c0))")
    code = _AMP if row.precision.startswith("amp") else _TORCH.get(row.options.get("way", ""), "")
    if not code:
        return ""
    mode = ', mode="reduce-overhead"' if device == "cuda" else ""
    known = {"device": device, "mode": mode, "precision": row.precision, "half": _half(row, device)}
    lines.append(code.format(**known))
    return "\n".join(lines)


def _tensorflow(row: Implementation, device: str) -> str:
    mode, cuda = row.options["mode"], device == "cuda"
    options = f"    use_cudnn={cuda and mode == 0},\n    implementation={1 if mode == 1 else 2},\n"
    if row.precision.startswith("amp"):
        options += f'    dtype="mixed_{_half(row, device)}",\n'
    strict = cuda and row.precision == "fp32"
    setting = "tf.config.experimental.enable_tensor_float_32_execution(False)\n" if strict else ""
    xla = ", jit_compile=True" if row.options.get("xla") else ""
    return _TENSORFLOW.format(setting=setting, options=options, xla=xla)
