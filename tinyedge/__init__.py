"""tinyedge: an ONNX model compiled ahead of time into a folder that runs in a page or on a device.

In short:

    tinyedge.export_onnx("model.onnx", target="webgpu", out="model.tinyedge")
    model = tinyedge.load("model.tinyedge")
    scores = model.run({"image": array})["scores"]
"""

from __future__ import annotations

from importlib import import_module

from tinyedge.core import values

# Nothing else is imported here, not even `typing`: until `__main__.main` has begun, Ctrl-C shows a
# traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:  # what type checkers see; in a run, each is imported when it is first used
    import typing

    from tinyedge.api import export_function, export_onnx
    from tinyedge.compiled import jit
    from tinyedge.core.errors import (
        BundleError,
        DeviceError,
        InputError,
        InternalError,
        ModelError,
        RunError,
        TinyedgeError,
        TraceError,
        UnsupportedOp,
    )
    from tinyedge.core.gradient.batch import vmap
    from tinyedge.core.gradient.transforms import (
        checkpoint,
        grad,
        jvp,
        stop_gradient,
        value_and_grad,
        vjp,
    )
    from tinyedge.core.tensor.tensor import Tensor
    from tinyedge.eager.places import device
    from tinyedge.eager.sizes import Dim
    from tinyedge.model import Model, load

__version__ = "0.1.0"

_HOMES = {
    "Model": "tinyedge.model",
    "export_function": "tinyedge.api",
    "export_onnx": "tinyedge.api",
    "load": "tinyedge.model",
    "Tensor": "tinyedge.core.tensor.tensor",
    "Dim": "tinyedge.eager.sizes",
    "device": "tinyedge.eager.places",
    "jit": "tinyedge.compiled",
    "checkpoint": "tinyedge.core.gradient.transforms",
    "grad": "tinyedge.core.gradient.transforms",
    "jvp": "tinyedge.core.gradient.transforms",
    "stop_gradient": "tinyedge.core.gradient.transforms",
    "value_and_grad": "tinyedge.core.gradient.transforms",
    "vjp": "tinyedge.core.gradient.transforms",
    "vmap": "tinyedge.core.gradient.batch",
    "BundleError": "tinyedge.core.errors",
    "DeviceError": "tinyedge.core.errors",
    "InputError": "tinyedge.core.errors",
    "InternalError": "tinyedge.core.errors",
    "ModelError": "tinyedge.core.errors",
    "RunError": "tinyedge.core.errors",
    "TinyedgeError": "tinyedge.core.errors",
    "TraceError": "tinyedge.core.errors",
    "UnsupportedOp": "tinyedge.core.errors",
}

__all__ = [
    "BundleError",
    "DeviceError",
    "Dim",
    "InputError",
    "InternalError",
    "Model",
    "ModelError",
    "RunError",
    "Tensor",
    "TinyedgeError",
    "TraceError",
    "UnsupportedOp",
    "checkpoint",
    "device",
    "export_function",
    "export_onnx",
    "grad",
    "jit",
    "jvp",
    "load",
    "stop_gradient",
    "value_and_grad",
    "vjp",
    "vmap",
]

_MODULES = ("nn", "optim", "random")


def _values() -> typing.Any:
    return import_module("tinyedge.eager.realize")


values.load = _values  # what computes tensors lies above the room of tensors


def __getattr__(name: str) -> typing.Any:
    """Public names load what they need when they are first used."""
    if name in _MODULES:
        return import_module(f"tinyedge.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'tinyedge' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, *_MODULES, "__version__"]
