"""onnxruntime."""
