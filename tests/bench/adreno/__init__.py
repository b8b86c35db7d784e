"""A qcom bundle's kernels as machine code of an Adreno 630, beside tinygrad's: counted, not run.

    scripts/setup adreno                                     # Mesa's compiler, once
    python -m tests.bench.adreno mobilenet_v2                # a model of the study or the benchmark
    python -m tests.bench.adreno model.onnx --beside tinygrad
    python -m tests.bench.adreno model.tinyedge --kernels

It is Mesa's compiler, not Qualcomm's: good for ranking kernels and for finding what wastes
instructions, not for milliseconds.
"""
