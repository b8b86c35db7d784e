"""Random numbers from explicit keys: the same bits on every target.

    key = random.key(0)
    first, second = random.split(key)
    noise = random.normal(first, (8, 3))

See core/tensor/drawing.py.
"""

from tinyedge.core.tensor.random import (
    Generator,
    bernoulli,
    bits,
    categorical,
    dropout,
    fold_in,
    key,
    normal,
    permutation,
    randint,
    split,
    threefry,
    uniform,
)

__all__ = [
    "Generator",
    "bernoulli",
    "bits",
    "categorical",
    "dropout",
    "fold_in",
    "key",
    "normal",
    "permutation",
    "randint",
    "split",
    "threefry",
    "uniform",
]
