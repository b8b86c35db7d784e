"""Optimizers: pure functions from a model and its gradients to the next model.

    opt = optim.Adam(optim.cosine(1e-3, 1000))
    state = opt.init(model)
    model, state = opt.update(model, gradients, state)

A model, its gradients and a state are trees of tensors. Nothing is changed in place: what an update
gives is a graph, like anything that is computed. Tensors of a model that are not of floats stay as
they are.
"""

from tinyedge.optim.methods import (
    LAMB,
    LARS,
    SGD,
    Adagrad,
    Adam,
    AdamW,
    Muon,
    RMSprop,
)
from tinyedge.optim.optimizer import Optimizer
from tinyedge.optim.schedules import (
    constant,
    cosine,
    exponential,
    linear,
    piecewise,
    warmup,
)
from tinyedge.optim.trees import average, clip_by_norm, clip_by_value, global_norm
from tinyedge.optim.wrappers import Accumulate, LossScale

__all__ = [
    "LAMB",
    "LARS",
    "SGD",
    "Accumulate",
    "Adagrad",
    "Adam",
    "AdamW",
    "LossScale",
    "Muon",
    "Optimizer",
    "RMSprop",
    "average",
    "clip_by_norm",
    "clip_by_value",
    "constant",
    "cosine",
    "exponential",
    "global_norm",
    "linear",
    "piecewise",
    "warmup",
]
