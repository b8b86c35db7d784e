"""Verification of a bundle's results: against its goldens, and against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tinyedge.core.dtype import by_name
from tinyedge.core.errors import DeviceError, InputError
from tinyedge.core.program.device import Device
from tinyedge.core.program.ports import decode, shape_of
from tinyedge.core.program.program import Program
from tinyedge.core.program.replay import Replay
from tinyedge.export.bundle.golden import (
    FLOAT16_TOLERANCE,
    FLOAT32_TOLERANCE,
    Comparison,
    Golden,
    GoldenInput,
    Run,
    case_inputs,
    compare,
    compare_case,
    compare_states,
    default_range,
    find_entry,
    has_fp16,
    play,
)
from tinyedge.export.bundle.reading import Bundle, read
from tinyedge.export.pictures import values_of

Array = np.ndarray[Any, Any]

FRESH_SEED = 0x7E57
FRESH_STEPS = 8  # where states are kept from run to run


@dataclass(frozen=True)
class Case:
    """One comparison of all outputs of an entry. `reference` is what made the expected values."""

    entry: str
    reference: str
    symbols: Mapping[str, int]
    outputs: tuple[Comparison, ...]

    @property
    def agrees(self) -> bool:
        return all(output.agrees for output in self.outputs)


@dataclass(frozen=True)
class Report:
    """What `verify` found: the goldens' cases, then those against onnxruntime."""

    bundle: Path
    device: str
    cases: tuple[Case, ...]

    @property
    def agrees(self) -> bool:
        return all(case.agrees for case in self.cases)

    def __str__(self) -> str:
        lines = [f"{self.bundle} on {self.device}"]
        for case in self.cases:
            sizes = "".join(f", {name}={size}" for name, size in case.symbols.items())
            lines.append(f"  {case.entry}{sizes}, against {case.reference}")
            for output in case.outputs:
                verdict = "agrees" if output.agrees else f"DIFFERS: {output.because}"
                lines.append(f"    {output.output}: error {output.error:.2g}, {verdict}")
        return "\n".join(lines)


def verify(
    path: str | Path,
    device: Device | None = None,
    against: str | Path | Mapping[str, str | Path] | None = None,
    *,
    run: Run | None = None,
    reset: Callable[[], None] | None = None,
    get_state: Callable[[str], Array] | None = None,
    variant: str = "",
    nodes: bool = False,
) -> Report:
    """Run a bundle on a device and compare with its goldens and, given `against`, with onnxruntime.

    against: the ONNX model the bundle was exported from, or models by entry; each is compared on
    fresh inputs, at the greatest and at the least sizes; of a declared picture it gets the values
    that the declaration makes of it. Where the bundle keeps states, a sequence
    of runs is compared, with the states at its end, and the model gets the states as inputs. run,
    reset, get_state: what replays the program in place of a Replay on `device`. variant: which of
    several programs of the bundle; default: that of its manifest.json. nodes: the goldens of the
    nodes' values in place of those of the model. Raises BundleError
    for a damaged bundle, DeviceError without a device, InputError when there is nothing to compare
    or onnxruntime is not installed.
    """
    bundle = read(path, choose=(lambda *_: variant) if variant else None)
    goldens = goldens_of(bundle, nodes)
    models = against if isinstance(against, Mapping) else {"": against} if against else {}
    if not goldens and not models:
        raise InputError(
            f"bundle {str(path)!r}",
            "it holds no goldens" + " of nodes" * nodes,
            id="verify.nothing",
            next="export it with --debug-goldens BYTES"
            if nodes
            else "compare with the model instead: --against model.onnx",
        )
    references = {}
    for name, model in models.items():
        entry = find_entry(bundle.program, name)
        references[entry.name] = _Reference(
            model, _chosen(bundle.program, entry.outputs), _constants(bundle.program)
        )
    with ExitStack() as stack:
        if run is None:
            if device is None:
                raise DeviceError(
                    f"bundle {str(path)!r}",
                    f"no device of target {bundle.program.target} was given",
                    id="device.missing",
                )
            replay = stack.enter_context(Replay(bundle.program, device))
            run, reset, get_state = replay.run, replay.reset, replay.get_state
        cases = [_golden_case(bundle.program, golden, run, reset, get_state) for golden in goldens]
        for name, reference in references.items():
            for fresh in _fresh_cases(bundle.program, name, goldens):
                case = _fresh_case(bundle.program, fresh, run, reset, get_state, reference)
                cases.append(case)
    return Report(Path(path), device.name if device else bundle.program.target, tuple(cases))


def goldens_of(bundle: Bundle, nodes: bool = False) -> list[Golden]:
    """The goldens of a bundle's own entries, or of those that give its nodes' values."""
    named = bundle.program.options.get("nodes")
    debug = named if isinstance(named, list) else []
    return [golden for golden in bundle.goldens() if (golden.entry in debug) is nodes]


def _chosen(program: Program, outputs: Sequence[str]) -> list[str]:
    """Values of the model that the bundle has in place of the model's outputs, if it has any."""
    if not program.options.get("outputs"):
        return []
    return [*outputs, *_feeds(program.options.get("states")).values()]


def _constants(program: Program) -> dict[str, str]:
    """The inputs of the model that are one number, in text; a manifest may hold anything."""
    return {
        each["name"]: str(each["value"])
        for each in _records(program.options.get("constants"), "name", "value")
    }


def _constant(text: str, port: Any) -> Array:
    """The number for an input of onnxruntime, of its type and shape. Raises ValueError."""
    kind = port.type.removeprefix("tensor(").removesuffix(")")
    dtype = np.dtype({"float": "float32", "double": "float64"}.get(kind, kind))
    number = text == "True" if text in ("True", "False") else float(text)
    number = int(text) if text.lstrip("-").isdigit() else number
    return np.full(port.shape, number, dtype)


def _golden_case(
    program: Program,
    golden: Golden,
    run: Run,
    reset: Callable[[], None] | None,
    get_state: Callable[[str], Array] | None,
) -> Case:
    outputs = compare_case(program, golden, play(program, golden, run, reset))
    if get_state is not None:
        outputs += compare_states(program, golden, get_state)
    return Case(golden.entry, golden.made, golden.symbols, outputs)


def _fresh_cases(program: Program, name: str, goldens: Sequence[Golden]) -> list[Golden]:
    """Cases without outputs: new inputs in the goldens' ranges, at the most and least sizes."""
    entry = find_entry(program, name)
    known = {
        number: record
        for golden in reversed(goldens)
        for number, record in zip(
            program.inputs_of(find_entry(program, golden.entry)), golden.inputs, strict=True
        )
    }
    inputs = []
    for number, port in program.inputs_of(entry).items():
        least, most = default_range(port.dtype)
        record = known.get(number)
        if record is not None and record.data is None:
            least, most = record.minimum, record.maximum
        elif record is not None and record.data is not None and record.data.size:
            if record.data.dtype.kind in "iu":
                least, most = int(record.data.min()), int(record.data.max())
        inputs.append(GoldenInput(least, most))
    tolerance = max((golden.tolerance for golden in goldens), default=_tolerance(program))
    steps = FRESH_STEPS if program.states else 1
    greatest = {symbol.name: symbol.max for symbol in program.symbols}
    smallest = {symbol.name: symbol.min for symbol in program.symbols}
    sizes = [greatest] if greatest == smallest else [greatest, smallest]
    return [
        Golden(entry.name, FRESH_SEED, steps, size, tolerance, "onnxruntime", tuple(inputs), ())
        for size in sizes
    ]


def _tolerance(program: Program) -> int:
    """The agreement asked of a bundle without goldens: that of half storage if it has any."""
    storages = {port.storage for port in (*program.inputs, *program.outputs)}
    half = "float16" in storages | {weight.storage for weight in program.weights}
    half = half or has_fp16(program)
    return FLOAT16_TOLERANCE if half else FLOAT32_TOLERANCE


def _fresh_case(
    program: Program,
    fresh: Golden,
    run: Run,
    reset: Callable[[], None] | None,
    get_state: Callable[[str], Array] | None,
    reference: _Reference,
) -> Case:
    actual = dict(play(program, fresh, run, reset))
    states = _States(program, fresh.symbols)
    expected: dict[str, Array] = {}
    for step in range(fresh.steps):
        given = _model_inputs(program, fresh, case_inputs(program, fresh, step))
        expected = reference.run(given | states.values)
        states.update(expected)
    entry = find_entry(program, fresh.entry)
    dtypes = {port.name: port.dtype for port in program.outputs_of(entry).values()}
    dtypes |= {f"state {state.name}": state.dtype for state in program.states}
    pairs = {name: (actual[name], expected[name]) for name in entry.outputs if name in expected}
    if get_state is not None:
        for name in states.updated:
            pairs[f"state {name}"] = get_state(name), states.values[name]
    if not pairs:
        names = ", ".join(entry.outputs) or "no outputs to compare"
        raise InputError(
            f"model {str(reference.path)!r}",
            f"it has none of what entry {fresh.entry!r} gives: {names}",
            id="verify.model",
            supported=", ".join(expected),
            next="give the model that the bundle was exported from",
        )
    outputs = tuple(
        compare(name, got, want, fresh.tolerance, dtypes[name])
        for name, (got, want) in pairs.items()
    )
    return Case(fresh.entry, fresh.made, fresh.symbols, outputs)


def _model_inputs(program: Program, case: Golden, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs as the model has them, in which declared pictures are values."""
    records = {each["input"]: each for each in _records(program.options.get("images"), "input")}
    found = dict(inputs)
    for name in inputs:
        record = records.get(ascii(name)[1:-1])
        if record is not None:
            found[name] = values_of(name, record, inputs, case.symbols)
    return found


class _States:
    """The states' values as a model without them needs them: inputs, made from its outputs."""

    def __init__(self, program: Program, symbols: Mapping[str, int]) -> None:
        self.states = program.states
        self.outputs = _feeds(program.options.get("states"))
        self.values: dict[str, Array] = {}
        self.updated: dict[str, None] = {}
        for state in program.states:
            if state.name not in self.outputs:
                raise InputError(
                    f"state {state.name!r}",
                    "the bundle does not say which output of the model feeds it",
                    id="verify.state",
                    next="leave --against away: the goldens cover the state",
                )
            shape = shape_of(state.shape, symbols)
            content = program.weights[state.initial].data if state.initial >= 0 else None
            if content is None:
                self.values[state.name] = np.zeros(shape, by_name(state.dtype).numpy)
            else:
                self.values[state.name] = decode(content, state, shape)

    def update(self, outputs: Mapping[str, Array]) -> None:
        """Take the outputs that feed states."""
        for state in self.states:
            new = outputs.get(self.outputs[state.name])
            if new is not None and state.update == "shift":
                axis, old = state.axis, self.values[state.name]
                _, left = np.split(old, [new.shape[axis]], axis)
                new = np.concatenate([left, new], axis)
            if new is not None:
                self.values[state.name] = new
                self.updated[state.name] = None


def _feeds(record: Any) -> dict[Any, Any]:
    """The output that feeds each state, from what a manifest records; it may hold anything."""
    return {each["name"]: each["output"] for each in _records(record, "name", "output")}


def _records(record: Any, *names: str) -> list[dict[Any, Any]]:
    """The entries of a record that have these fields."""
    listed = record if isinstance(record, list) else []
    return [each for each in listed if isinstance(each, dict) and {*names} <= each.keys()]


class _Reference:
    """An ONNX model in onnxruntime, on the CPU, or what some of its values need.

    chosen: the values, those that the model has; none: its outputs. constants: inputs that are
    always one number, in text. Raises InputError where it cannot be run.
    """

    def __init__(
        self, path: str | Path, chosen: Sequence[str], constants: Mapping[str, str]
    ) -> None:
        self.path = Path(path)
        self.constants = constants
        if not self.path.is_file():
            raise InputError(f"model {str(path)!r}", "there is no such file", id="verify.model")
        try:
            import onnxruntime
        except ImportError as error:
            raise InputError(
                "--against",
                "onnxruntime is not installed",
                id="verify.onnxruntime",
                next="pip install onnxruntime",
            ) from error
        try:
            options = onnxruntime.SessionOptions()
            if chosen:
                options.log_severity_level = 3  # weights that the chosen values do not need
            options.add_session_config_entry(
                "session.model_external_initializers_file_folder_path", str(self.path.parent)
            )
            # Each quantizer rounds where the file says: fused into products, some round elsewhere.
            options.add_session_config_entry("session.disable_quant_qdq", "1")
            self._session: Any = onnxruntime.InferenceSession(
                self._part(chosen) if chosen else str(self.path),
                options,
                providers=["CPUExecutionProvider"],
            )
        except Exception as error:  # onnxruntime's own errors share no narrower base
            raise self._failed(error) from error

    def _part(self, chosen: Sequence[str]) -> bytes:
        """The model with the chosen values as its outputs."""
        import onnx

        from tinyedge.export.onnx.selection import select, values_of

        model = onnx.load(str(self.path), load_external_data=False)
        values = values_of(model.graph)
        select(model.graph, [name for name in chosen if name in values])
        content: bytes = model.SerializeToString()
        return content

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The model's outputs by name, for those of `inputs` that it has; of a sequence each."""
        from tinyedge.export.onnx.imported import element_names

        wanted = {item.name: item for item in self._session.get_inputs()}
        names = [item.name for item in self._session.get_outputs()]
        given = {name: value for name, value in inputs.items() if name in wanted}
        try:
            for name, text in self.constants.items():
                if name in wanted and name not in given:
                    given[name] = _constant(text, wanted[name])
            values = self._session.run(names, given)
        except Exception as error:  # as above
            raise self._failed(error) from error
        found: dict[str, Array] = {}
        for name, value in zip(names, values, strict=True):
            parts = element_names(name, value) if isinstance(value, list) else {name: value}
            found.update((each, np.asarray(part)) for each, part in parts.items())
        return found

    def _failed(self, error: Exception) -> InputError:
        return InputError(
            f"model {str(self.path)!r}",
            f"onnxruntime cannot run it: {error}",
            id="verify.model",
            next="give the model that the bundle was exported from",
        )
