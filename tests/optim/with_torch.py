"""Runs in an environment that has torch: each optimizer's parameters after each step, as JSON."""

import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.optim.problem import OPTIMIZERS, RATE, STEPS, data, values


def run(kind: str, options: dict) -> list:
    x, y = (torch.tensor(array) for array in data())
    model = {name: torch.tensor(v, requires_grad=True) for name, v in values().items()}
    optimizer = getattr(torch.optim, kind)(list(model.values()), lr=RATE, **options)
    trace = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        hidden = torch.tanh(x @ model["weight"].T + model["bias"])
        loss = ((hidden @ model["head"].T - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        trace.append([v.detach().flatten().tolist() for v in model.values()])
    return trace


found = {name: run(kind, options) for name, (_, kind, options) in OPTIMIZERS.items() if kind}
print(json.dumps(found))
