"""The process that gets tinygrad's kernels of a model: `python -m tests.bench.adreno.capture`.

A device stands in for tinygrad's QCOM: the same renderer and the same facts (an Adreno 630 with
images), but it keeps each launch's text instead of running it. Values are zeros, so only shapes may
decide what is launched. Settings are those of tinygrad's own largest user on this device: images,
fp16 values, no local sizes.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.worker import serve

SETTINGS = {"DEV": "QCOM", "IMAGE": "1", "FLOAT16": "1", "NOLOCALS": "1", "PARALLEL": "0"}
ARCH = "a630,IMAGE_PITCH_ALIGNMENT=64"  # as tinygrad's device says of itself

Seen = list[tuple[str, str, int]]  # of each launch: kernel's name, text, threads


def install(seen: Seen) -> None:
    """Put the stand-in where tinygrad looks for its device; its launches go to `seen`."""
    from tinygrad.device import Allocator, Compiled, Program
    from tinygrad.renderer.cstyle import OpenCLRenderer, QCOMCLRenderer

    class Renderer(QCOMCLRenderer):
        """Without the vendor's compiler."""

        def __init__(self, target: Any) -> None:
            OpenCLRenderer.__init__(self, target)

    class Kept(Program):
        def __init__(self, dev: Any, obj: Any) -> None:
            self._name, self._text = obj.name, obj.lib.decode()

        def __call__(
            self, *bufs: Any, global_size: Any = (), local_size: Any = (), **more: Any
        ) -> float:
            threads = int(np.prod(global_size) * np.prod(local_size or (1,)))
            seen.append((self._name, self._text, threads))
            return 0.0

    class Memory(Allocator):
        def _alloc(self, size: int, options: Any) -> bytearray:
            return bytearray(size)

        def _free(self, opaque: bytearray, options: Any) -> None: ...

        def _copyin(self, dest: bytearray, src: memoryview) -> None:
            dest[: src.nbytes] = src.cast("B")

        def _copyout(self, dest: memoryview, src: bytearray) -> None:
            dest[:] = memoryview(src)[: dest.nbytes]

        def _offset(self, buf: bytearray, size: int, offset: int) -> bytearray:
            return buf

    class QCOMDevice(Compiled):
        def __init__(self, device: str) -> None:
            super().__init__(device, Memory(self), [Renderer], Kept, arch=ARCH)

    module = types.ModuleType("tinygrad.runtime.ops_qcom")
    QCOMDevice.__module__ = module.__name__
    vars(module)["QCOMDevice"] = QCOMDevice
    sys.modules[module.__name__] = module


def launches(path: Path, shapes: dict[str, list[int]]) -> Seen:
    """What a replay of a model launches, its inputs given."""
    seen: Seen = []
    install(seen)
    from tinygrad import Tensor, TinyJit
    from tinygrad.nn.onnx import OnnxRunner

    runner = OnnxRunner(str(path))

    def forward(**inputs: Any) -> dict[str, Any]:
        outputs = {name: value.contiguous() for name, value in runner(inputs).items()}
        Tensor.realize(*outputs.values())
        return outputs

    replay = TinyJit(forward, prune=True)
    inputs = {
        name: Tensor(np.zeros(shape, np.float32), dtype=runner.graph_inputs[name].dtype).realize()
        for name, shape in shapes.items()
    }
    for _ in range(3):  # TinyJit runs, captures, replays
        given = {name: value.clone().realize() for name, value in inputs.items()}
        seen.clear()
        replay(**given)
    return list(seen)


def _answer(request: Any) -> dict[str, Any]:
    path, shapes = request
    return {"launches": launches(path, shapes)}


if __name__ == "__main__":
    handle: Callable[[Any], dict[str, Any]] = _answer
    serve(handle)
