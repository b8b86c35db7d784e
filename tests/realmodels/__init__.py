"""Real models, exported and replayed by every runtime, against onnxruntime."""
