"""A loaded bundle: what runs it, without the compiler and without ONNX."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyedge.core.dtype import by_name, codes
from tinyedge.core.errors import DeviceError, InputError, RunError
from tinyedge.core.program.device import device_module, forked
from tinyedge.core.program.program import Program
from tinyedge.core.program.replay import Replay
from tinyedge.given import check_name, checked
from tinyedge.labels import Ranked, top
from tinyedge.pictures import opened

if TYPE_CHECKING:
    from tinyedge.export.bundle.reading import Choice

TARGETS = ("webgpu", "qcom", "cuda", "cpu")


def open_device(program: Program, device: str | None = None) -> Any:
    """A device that can run the program. Raises DeviceError."""
    if program.target not in TARGETS:
        raise DeviceError(
            f"target {program.target!r}",
            "this version of tinyedge cannot run it",
            id="device.target",
            supported=", ".join(TARGETS),
        )
    module = device_module(program.target)
    return module.open(device, requirements=program.requirements)


def pick(target: str, choices: Sequence[Choice], name: str | None = None) -> str:
    """The name of the best of a bundle's programs whose requirements this machine meets, or the one
    of that name; "" where there are none. Raises DeviceError, InputError.
    """
    if not choices and name is None:
        return ""
    if name is not None and name not in [choice.name for choice in choices]:
        from tinyedge.export.bundle.reading import say_choices

        raise InputError(
            f"variant {name!r:.80}",
            "the bundle has no such variant" if choices else "the bundle has no variants",
            id="option.variant",
            supported=say_choices(choices),
            next="" if choices else "leave the variant out",
        )
    wanted = [choice for choice in choices if name in (None, choice.name)]
    lacks = {choice.name: lacking(target, choice) for choice in wanted}
    for found, words in lacks.items():
        if not words:
            return found
    needs = "; ".join(f"{found} needs {', '.join(words)}" for found, words in lacks.items())
    raise DeviceError(
        f"the {target} device",
        f"it lacks what the bundle's {'variants require' if name is None else 'variant requires'}: "
        f"{needs}",
        id="device.limits",
        next="export with one more --profile that this device can run",
    )


def lacking(target: str, choice: Choice) -> list[str]:
    """What one of a bundle's programs requires and this machine does not have."""
    if target not in TARGETS:
        return list(choice.requires)
    module = device_module(target)
    known: Callable[[Sequence[str]], list[str]] = getattr(module, "lacking", list)
    return known(choice.requires)


class Model:
    """A loaded bundle on a device. Use as a context manager, or call close().

    Threads may share it: their calls take turns. A process that was forked after the bundle was
    loaded may use its copy of a model on the cpu, and no other (DeviceError device.fork).
    """

    def __init__(self, program: Program, device: str | None = None, variant: str = "") -> None:
        self.variant = variant  # which of the bundle's programs it is; "": there is one
        self._closed = False
        self._lock = threading.RLock()
        self._running = False
        self._process = os.getpid()
        self._device = open_device(program, device)
        self._replay = Replay(program, self._device)
        self.program = self._replay.program
        _models.add(self)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The inputs: each with name, dtype and shape (sizes: ints or expressions of symbols)."""
        return self.program.inputs

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The outputs, as `inputs`; each also with its named slices."""
        return self.program.outputs

    @property
    def states(self) -> tuple[Any, ...]:
        """The values kept between runs, as `inputs`."""
        return self.program.states

    @property
    def entries(self) -> tuple[Any, ...]:
        """What can be run: each with name, inputs and outputs (names), input_numbers and
        output_numbers (where these are among `inputs` and `outputs`, of which those of several
        entries may have one name). The first is the default.
        """
        return self.program.entries

    def run(self, inputs: Mapping[str, Any], entry: str | None = None) -> dict[str, Any]:
        """Run once, and update the states.

        Args:
            inputs: Arrays by name, of the declared element types and shapes. An input that was
                exported as a picture also takes a file's name or a Pillow image, of several frames
                a list of these; for files the package needs Pillow (the extra `pictures`).
            entry: The name of what is run; default: the first of `entries`.

        Returns:
            The outputs by name, and their named slices: new arrays.

        Raises:
            RunError: An input of a wrong name, type, shape or range; the model was closed.
            DeviceError: The device failed or was lost.
        """
        self._check(inputs, entry)
        given = opened(self.program, inputs, entry)
        with self._turn():
            return self._replay.run(given, entry)

    def top(
        self, outputs: Mapping[str, Any], name: str, count: int = 5, row: int = 0
    ) -> list[Ranked]:
        """The classes of an output with the greatest values, best first: each with index, label and
        value.

        Args:
            outputs: What `run` returned.
            name: An output that was exported with labels.
            count: How many, from 1 on.
            row: Which of the places along its other axes, in row-major order.

        Raises:
            RunError: The output has no labels, or no such row; the count is no whole number from 1.
        """
        return top(self.program, outputs, name, count, row)

    def reset(self) -> None:
        """Give every state its initial value."""
        with self._turn():
            self._replay.reset()

    def get_state(self, name: str) -> Any:
        """A copy of a state's value. Raises RunError."""
        check_name("the state's name", name, [state.name for state in self.states])
        with self._turn():
            return self._replay.get_state(name)

    def set_state(self, name: str, value: Any) -> None:
        """Give a state a value of its dtype and shape. Raises RunError."""
        check_name("the state's name", name, [state.name for state in self.states])
        with self._turn():
            self._replay.set_state(name, value)

    def save_states(self, path: str | Path) -> None:
        """Write all states into a file of the form safetensors, by their names.

        Raises InputError for a type that the format lacks or a path where nothing can be written,
        RunError as `get_state` does.
        """
        from tinyedge.nn import safetensors

        with self._turn():
            values = {each.name: self._replay.get_state(each.name) for each in self.states}
        types = {each.name: by_name(each.dtype) for each in self.states}
        safetensors.write(path, {n: (types[n], codes(value)) for n, value in values.items()})

    def load_states(self, path: str | Path) -> None:
        """Give every state its value in such a file; what else it holds does not matter.

        Raises InputError for a file that is damaged, lacks a state, or has it in another type or
        shape; then no state has changed.
        """
        from tinyedge.nn import safetensors

        found = safetensors.read(path)
        with self._turn():
            for state in self.states:
                now = codes(self._replay.get_state(state.name))
                dtype, value = found.get(state.name, (None, now[:0] if now.ndim else now))
                if dtype is not by_name(state.dtype) or value.shape != now.shape:
                    has = f"has it as {dtype} {list(value.shape)}" if dtype else "lacks it"
                    raise InputError(
                        f"state {state.name!r}",
                        f"the file {str(path)!r} {has}",
                        id="run.states",
                        supported=f"{state.dtype} {list(now.shape)}",
                        next="load a file that save_states wrote for this bundle",
                    )
            for state in self.states:
                self._replay.set_state(state.name, found[state.name][1])

    def profile(self, inputs: Mapping[str, Any], entry: str | None = None) -> Any:
        """Run once as `run` does, and return (launch, seconds) for every launch."""
        self._check(inputs, entry)
        given = opened(self.program, inputs, entry)
        with self._turn():
            return self._replay.profile(given, entry)

    def _check(self, inputs: Any, entry: Any) -> None:
        if not isinstance(inputs, Mapping):
            raise RunError(
                "the inputs",
                f"they are of type {type(inputs).__name__}",
                id="run.input",
                supported="a dict of arrays by name",
                next=f"names: {', '.join(repr(port.name) for port in self.inputs) or 'none'}",
            )
        if entry is not None:
            check_name("the entry's name", entry, [entry.name for entry in self.entries])

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """The model for one call: those of other threads wait.

        A call from within a call (from a signal handler, or from an input that is converted)
        comes through the lock, and is refused.
        """
        process = self._device.process
        if process not in (None, os.getpid()):
            raise forked("the model", process)
        with self._lock:
            if self._closed:
                raise RunError(
                    "the model", "it was closed", id="run.disposed", next="load the bundle again"
                )
            if self._running and self._process != os.getpid():
                raise DeviceError(
                    "the model",
                    f"process {self._process} forked this one, {os.getpid()}, in the middle of a "
                    "run of another thread, whose values are half computed",
                    id="device.fork",
                    next="load the bundle in the child, or fork while nothing runs",
                )
            if self._running:
                raise RunError(
                    "the model",
                    "it is in the middle of a call of this thread",
                    id="run.busy",
                    next="call it after that, or load the bundle a second time",
                )
            self._running = True
            try:
                yield
            finally:
                self._running = False

    def close(self) -> None:
        """Free the device's memory, after the calls in progress; a closed model runs no more."""
        if self._device.process not in (None, os.getpid()):
            self._closed = True  # what it holds belongs to the process that loaded it
            return
        with self._lock:
            if self._closed:
                return
            with self._turn():
                self._closed = True
                self._replay.close()
                self._device.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_models: weakref.WeakSet[Model] = weakref.WeakSet()


def _after_fork() -> None:
    """A child has one thread: no other will give back the locks that it held at the fork."""
    for model in _models:
        model._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@checked
def load(path: str | Path, device: str | None = None, variant: str | None = None) -> Model:
    """Verify a bundle, open a device of its target and compile its kernels there.

    The kernels of a bundle for cpu, qcom or cuda are native code that runs in this process: load
    only bundles whose programs you would run.

    Args:
        path: The bundle's folder.
        device: A part of the name of a device, as `tinyedge devices` lists them; default: the
            first.
        variant: Of a bundle of several programs, exported with several profiles, the name of the
            one to run, which `model.variant` says; default: the best that this machine can run.

    Raises:
        BundleError: The bundle fails a check; its `id` says which.
        InputError: It has no such variant.
        DeviceError: There is no such device or no compiler, or the device is too small, or lacks
            what the variant, or each of them, requires.
    """
    from tinyedge.export.bundle.reading import read

    bundle = read(path, choose=partial(pick, name=variant))
    return Model(bundle.program, device, bundle.variant)
