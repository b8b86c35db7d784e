"""Cases for both of PyTorch's exporters, and how each exporter is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.exporters.recipes import Array, Recipe

OPSET = 18
WAYS = ("traced", "dynamo")


@dataclass(frozen=True)
class Case:
    """make: the module. dynamic: of each input, its axes of open size. names: of the inputs, x0, x1
    and so on if there are none. ways: the exporters that get it. options: what else the newer one
    is told.
    """

    make: Callable[[], Callable[..., Any]]
    inputs: Sequence[Tensor]
    dynamic: Sequence[Mapping[int, str]] = ()
    names: Sequence[str] = ()
    outputs: Sequence[str] | None = None
    ways: Sequence[str] = WAYS
    options: Mapping[str, Any] = field(default_factory=dict)

    def named(self) -> list[str]:
        """Of each input, its name."""
        return list(self.names) or [f"x{number}" for number in range(len(self.inputs))]

    def common(self) -> dict[str, Any]:
        """What both exporters are told."""
        outputs = None if self.outputs is None else list(self.outputs)
        return {"input_names": self.named(), "output_names": outputs, "opset_version": OPSET}


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def floats(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def whole(high: int, *shape: int, low: int = 0) -> Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(1))


def traced(case: Case, module: nn.Module, path: Path) -> None:
    """By the older exporter, which asks for an ONNX node for each operation."""
    sizes = zip(case.named(), case.dynamic, strict=False)
    axes = {name: dict(open_) for name, open_ in sizes if open_}
    told = {**case.common(), "dynamic_axes": axes}
    torch.onnx.export(module, tuple(case.inputs), path, dynamo=False, **told)


def dynamo(case: Case, module: nn.Module, path: Path) -> None:
    """By the newer exporter, which asks for a function of onnxscript for each operation."""
    shapes: list[Any] = [dict(sizes) for sizes in case.dynamic]
    shapes += [{}] * (len(case.inputs) - len(shapes))
    if isinstance(module, Function):
        shapes = [tuple(shapes)]  # of its one argument, which takes all
    told = {**case.common(), **case.options, "external_data": False, "verbose": False}
    told["dynamic_shapes"] = tuple(shapes) if case.dynamic else None
    torch.onnx.export(module, tuple(case.inputs), path, dynamo=True, **told)


EXPORTERS = {"traced": traced, "dynamo": dynamo}


def writer(case: Case, way: str, seed: int) -> Callable[[Path], Mapping[str, Array]]:
    def write(path: Path) -> Mapping[str, Array]:
        torch.manual_seed(seed)
        made = case.make()
        assert isinstance(made, nn.Module)
        EXPORTERS[way](case, made.eval(), path)
        pairs = zip(case.named(), case.inputs, strict=True)
        return {key: value.numpy() for key, value in pairs}

    return write


def recipes(name: str, case: Case, seed: int) -> Iterator[Recipe]:
    """One of each exporter. seed: of the weights."""
    for way in case.ways:
        options = f"torch.onnx.export({name}, dynamo={way == 'dynamo'})"
        yield Recipe(f"{name}.{way}", options, writer(case, way, seed))
