"""Training steps beside tinygrad's JIT and torch: `python -m tests.bench.training`."""
