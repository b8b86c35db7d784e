"""Random ONNX models, compiled and compared with onnxruntime, ONNX's evaluator and our own.

`python -m tests.onnxfuzz --count 10000 --seed 1` runs for longer than the suite does; see `--help`.
"""
