"""Runs in an environment that has torch: FOLDER has NAME.npz, a network's first weights. The losses
of each network by each optimizer are printed as JSON.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.optim.networks import NETWORKS, OPTIMIZERS, STEPS, TORCH, batch


class Call(nn.Module):
    def __init__(self, module, function):
        super().__init__()
        self.module, self.function = module, function

    def forward(self, x):
        return self.function(self.module, x)


def chain(*parts):
    one = (p if isinstance(p, nn.Module) else Call(None, lambda _, x, f=p: f(x)) for p in parts)
    return nn.Sequential(*one)


NAMES = {
    **{name: getattr(nn, name) for name in dir(nn) if name[0].isupper()},
    **{name: eval(text) for name, text in TORCH.items()},
    **{"Call": Call, "chain": chain, "tanh": torch.tanh, "relu": torch.relu},
    "gelu": nn.functional.gelu,
    "pooled": nn.MaxPool2d(2),
    "flat": nn.Flatten(),
    "mixed": lambda results: results[0],
}


def losses(name, optimizer):
    model = eval(NETWORKS[name][0], NAMES)
    stored = np.load(Path(sys.argv[1]) / f"{name}.npz")
    counts = {key: value for key, value in model.state_dict().items() if key.endswith("tracked")}
    model.load_state_dict({**counts, **{key: torch.tensor(stored[key]) for key in stored}})
    rate, options = OPTIMIZERS[optimizer]
    opt = getattr(torch.optim, optimizer)(model.parameters(), lr=rate, **options)
    x, y = (torch.tensor(array) for array in batch(name))
    found = []
    for _ in range(STEPS):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y.long())
        loss.backward()
        opt.step()
        found.append(loss.item())
    return found


print(json.dumps({name: {opt: losses(name, opt) for opt in OPTIMIZERS} for name in NETWORKS}))
