"""Layers, losses and models: trees of parameters, called as functions.

    model = nn.Sequential(nn.Linear(64, 32), nn.relu, nn.Dropout(0.1), nn.Linear(32, 10))

    def loss(model, x, y, key):
        with nn.training(key) as run:
            value = nn.cross_entropy(model(x), y)
        return value, run.updated(model)

    (value, model), gradients = value_and_grad(loss, has_aux=True)(model, x, y, key)
    model, state = opt.update(model, gradients, state)

Names, defaults and first values are torch's; so are the names in `state_dict`.
"""

from tinyedge.core.gradient.trees import Buffer
from tinyedge.nn.attention import MultiHeadAttention, attention
from tinyedge.nn.functions import (
    Dropout,
    average_pool,
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    celu,
    cross_entropy,
    ctc_loss,
    elu,
    flatten,
    gelu,
    global_average_pool,
    hard_sigmoid,
    hard_swish,
    huber_loss,
    kl_div,
    l1_loss,
    leaky_relu,
    log_softmax,
    max_pool,
    mish,
    mse_loss,
    nll_loss,
    relu,
    selu,
    sigmoid,
    silu,
    smooth_l1_loss,
    softmax,
    softplus,
    softsign,
    tanh,
)
from tinyedge.nn.init import seed
from tinyedge.nn.linear import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Embedding,
    Linear,
)
from tinyedge.nn.module import Module, Sequential, load_state_dict, state_dict, training
from tinyedge.nn.norms import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm
from tinyedge.nn.recurrent import GRU, LSTM, RNN
from tinyedge.nn.safetensors import load, save

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "BatchNorm",
    "Buffer",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Dropout",
    "Embedding",
    "GroupNorm",
    "InstanceNorm",
    "LayerNorm",
    "Linear",
    "Module",
    "MultiHeadAttention",
    "RMSNorm",
    "Sequential",
    "attention",
    "average_pool",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "cross_entropy",
    "ctc_loss",
    "elu",
    "flatten",
    "gelu",
    "global_average_pool",
    "hard_sigmoid",
    "hard_swish",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "leaky_relu",
    "load",
    "load_state_dict",
    "log_softmax",
    "max_pool",
    "mish",
    "mse_loss",
    "nll_loss",
    "relu",
    "save",
    "seed",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softplus",
    "softsign",
    "state_dict",
    "tanh",
    "training",
]
