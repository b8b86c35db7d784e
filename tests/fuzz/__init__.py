"""Random graphs of tensor operations, compiled and compared with the reference evaluator.

`python -m tests.fuzz --count 2000 --seed 1` runs for longer than the suite does; see `--help`.
"""
