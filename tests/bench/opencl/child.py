"""The process of one side: `python -m tests.bench.opencl.child`, driven by process.Child.

Requests come pickled on standard input, answers go to standard output. The first request says what
to run, its answer has the first outputs; the others ask for facts, or what runs or replays spend.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.worker import measure, serve, spent

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


class Tinygrad:
    """A model by tinygrad's ONNX reader and TinyJit; `prune` keeps what inputs do not change."""

    def __init__(self, path: Path) -> None:
        from tinygrad import Tensor, TinyJit
        from tinygrad.nn.onnx import OnnxRunner

        runner = OnnxRunner(str(path))

        def forward(**inputs: Any) -> dict[str, Any]:
            outputs = {name: value.contiguous() for name, value in runner(inputs).items()}
            Tensor.realize(*outputs.values())
            return outputs

        self._replay = TinyJit(forward, prune=True)
        self._ready: dict[str, Any] = {}

    def run(self, arrays: Mapping[str, Array]) -> Arrays:
        from tinygrad import Tensor

        # A clone: a tensor of one element is a constant otherwise, which a replay does not take.
        self._ready = {name: Tensor(array).clone().realize() for name, array in arrays.items()}
        outputs = self._replay(**self._ready)
        return {name: output.numpy() for name, output in outputs.items()}

    def replay(self) -> None:
        """The launches alone, with the inputs of the last run."""
        from tinygrad import Device

        self._replay(**self._ready)
        Device[Device.DEFAULT].synchronize()

    def facts(self) -> dict[str, float]:
        """Launches of a replay, bytes of buffers."""
        from tinygrad import GlobalCounters

        before = GlobalCounters.kernel_count
        self.replay()
        launches = GlobalCounters.kernel_count - before
        return {"launches": launches, "bytes": GlobalCounters.mem_used}


class Python:
    """A bundle by the Python replay."""

    def __init__(self, path: Path) -> None:
        import tinyedge

        self._model = tinyedge.load(path)

    def run(self, arrays: Mapping[str, Array]) -> Arrays:
        return self._model.run(arrays)

    def facts(self) -> dict[str, float]:
        return {}


class C:
    """A bundle by its C runtime, called from here."""

    def __init__(self, path: Path) -> None:
        from tests.runtimes_c.library import Context, Library

        class OpenclLibrary(Library):
            backend = "te_opencl"

        self._library = OpenclLibrary(path)
        self._context = Context(self._library)

    def run(self, arrays: Mapping[str, Array]) -> Arrays:
        return self._context.run(arrays)

    def facts(self) -> dict[str, float]:
        """Bytes of the device."""
        return {"bytes": self._library.measure().device}


RUNNERS = {"tinygrad": Tinygrad, "python": Python, "c": C}


class _Side:
    """Answers for one runner, which the first request names."""

    def __init__(self) -> None:
        self._runner: Any = None
        self._arrays: Mapping[str, Array] = {}

    def __call__(self, request: Any) -> dict[str, Any]:
        if self._runner is None:
            name, path, self._arrays = request
            self._runner = RUNNERS[name](path)
            outputs = self._runner.run(self._arrays)
            return {"cpu": spent(), "outputs": outputs}
        kind, times = request
        if kind == "facts":
            facts: dict[str, Any] = self._runner.facts()
            return facts
        if kind == "replay":
            return measure(self._runner.replay, times)
        return measure(lambda: self._runner.run(self._arrays), times)


if __name__ == "__main__":
    serve(_Side())
