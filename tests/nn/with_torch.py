"""Runs in an environment that has torch: FOLDER has an NUMBER.npz of parameters for each layer;
results, gradients and buffers go to NUMBER.0.npz, of training to NUMBER.1.npz.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.nn.cases import LAYERS, LOSSES, Call, above, arrays, cotangents, last

NAMES = {
    "nn": nn,
    "F": nn.functional,
    "Call": Call,
    "above": lambda size: torch.tensor(above(size)),
    "last": lambda rows, size: torch.tensor(last(rows, size)),
}


def tensors(name, shapes):
    found = [torch.tensor(array) for array in arrays(name, shapes)]
    return [x.requires_grad_() if x.is_floating_point() else x for x in found]


def flat(results):
    if isinstance(results, torch.Tensor):
        return [results]
    return [leaf for part in results for leaf in flat(part)]


def layer(folder, number, name, training):
    ours, theirs, shapes = LAYERS[name]
    made = eval(theirs or ours, NAMES)
    module = made.module if isinstance(made, Call) else made
    inputs = tensors(name, shapes)
    if isinstance(module, nn.Module):
        state = np.load(folder / f"{number}.npz")
        module.load_state_dict({key: torch.tensor(state[key]) for key in state}, strict=False)
        module.train(training)
    results = flat(made(*inputs))
    weights = cotangents([tuple(r.shape) for r in results])
    sum((r * torch.tensor(w)).sum() for r, w in zip(results, weights, strict=True)).backward()
    out = {f"result {n}": r.detach().numpy() for n, r in enumerate(results)}
    for n, x in enumerate(inputs):
        if x.grad is not None:
            out[f"input {n}"] = x.grad.numpy()
    if isinstance(module, nn.Module):
        for key, parameter in module.named_parameters():
            out[f"gradient {key}"] = parameter.grad.numpy()
        for key, buffer in module.named_buffers():
            out[f"buffer {key}"] = buffer.numpy()
    np.savez(folder / f"{number}.{int(training)}.npz", **out)


def loss(folder, number, name):
    ours, theirs, shapes = LOSSES[name]
    x, *others = (torch.tensor(array) for array in arrays(name, shapes))
    x.requires_grad_()
    values = dict(zip("yw", others, strict=False))
    result = eval(f"F.{theirs or ours}", {"F": nn.functional, "x": x, **values})
    (weight,) = cotangents([tuple(result.shape)])
    (result * torch.tensor(weight)).sum().backward()
    np.savez(folder / f"loss {number}.npz", result=result.detach().numpy(), gradient=x.grad.numpy())


folder = Path(sys.argv[1])
for number, name in enumerate(LAYERS):
    for training in (False, True):
        layer(folder, number, name, training)
for number, name in enumerate(LOSSES):
    loss(folder, number, name)
