"""The compiler: lazy tensors, one graph IR, schedules, kernels. Knows no target, no file format."""
