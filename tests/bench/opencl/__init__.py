"""Bundles for qcom beside tinygrad's OpenCL backend, both on PoCL, each in a process of its own.

    python -m tests.bench.opencl                       # every model
    python -m tests.bench.opencl pnet minilm --quick
    python -m tests.bench.opencl.kernels opennsfw      # the time of each launch, slowest first

PoCL runs OpenCL on the processor: CPU seconds and their ratios say how much work was left to do,
not how fast an Adreno does it.
"""
