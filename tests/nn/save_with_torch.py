"""Runs in an environment that has torch: writes FOLDER/NAME.pt, and its arrays as NAME.npz."""

import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from torch import nn

torch.manual_seed(1)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 5))
optimizer = torch.optim.Adam(model.parameters())
model(torch.randn(2, 1, 8, 8)).square().sum().backward()
optimizer.step()
base = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
kinds = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"]
kinds += ["uint16", "uint32", "uint64"]
bits = {"bfloat16": torch.int16, "float8_e4m3fn": torch.uint8, "float8_e5m2": torch.uint8}
CASES = {
    "state": model.state_dict(),
    "parameters": OrderedDict(model.named_parameters()),
    "training": {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": 3,
        "best": 0.25,
        "note": "fünf",
        "shape": torch.Size([2, 3]),
        "device": torch.device("cpu"),
        "kind": torch.float16,
        "done": None,
    },
    "views": {
        "base": base,
        "turned": base.permute(2, 0, 1),
        "part": base[1, 1:, ::2],
        "wide": torch.ones(1).expand(1, 1),
        "scalar": base[1, 2, 3],
        "none": torch.zeros(0, 3),
        "again": base,
    },
    "types": {kind: torch.tensor([0, 1, 100]).to(getattr(torch, kind)) for kind in kinds},
    "stored": {kind: torch.tensor([0.5, -2.0]).to(getattr(torch, kind)) for kind in bits},
    "lists": [torch.ones(2), (torch.zeros(3), {"deep": torch.ones(1, 2)})],
}


def named(value, way=""):
    """Tensors by the way to each."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        kind = str(value.dtype).removeprefix("torch.")
        yield way, (value.view(bits[kind]) if kind in bits else value).numpy()
    elif isinstance(value, (dict, list, tuple)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in items:
            yield from named(part, f"{way}.{key}" if way else str(key))


folder = Path(sys.argv[1])
for name, value in CASES.items():
    torch.save(value, folder / f"{name}.pt")
    np.savez(folder / f"{name}.npz", **dict(named(value)))
torch.save(model, folder / "module.pt")
torch.save(CASES["state"], folder / "old.pt", _use_new_zipfile_serialization=False)
