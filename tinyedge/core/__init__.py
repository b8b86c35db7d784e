"""The compiler: lazy tensors, one graph IR, scheduling, kernels. Knows no target and no file format."""
