"""Benchmarks: what exported bundles cost in a browser, beside a peer measured in the same run.

    python -m tests.bench                     # all models, beside onnxruntime-web
    python -m tests.bench pnet onet --quick
    python -m tests.bench.kernels opennsfw    # the time of each launch, slowest first
    python -m tests.bench.split bert          # a run by kind of launch

No test depends on a time; these are commands.
"""
