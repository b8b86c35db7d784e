"""Operations on devices: kernels by hand in WGSL, OpenCL C and CUDA C beside the generated ones.

    python -m tests.study --target webgpu     # or qcom, cuda

programs.py lays operands out and puts launches together, replayed.py runs them and our bundles.
"""
