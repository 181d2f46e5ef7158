"""openvino."""
