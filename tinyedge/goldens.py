"""Golden cases: inputs and what a plain program in double precision makes of them."""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyedge.choices import find_target
from tinyedge.core import dtype as dtypes
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.options import Options
from tinyedge.core.errors import DeviceError, InputError, RunError
from tinyedge.core.program.program import Program
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graphs
from tinyedge.export.limits import Limits
from tinyedge.export.ports import PORTS

if TYPE_CHECKING:
    from tinyedge.export.bundle.golden import Golden

Warn = Callable[[str], None]

log = logging.getLogger("tinyedge")

NODES_TOLERANCE = 10_000  # millionths, of nodes' values: rounding adds up on the way to them
# GCC clears the upper halves of registers before it calls a function of the C library only where
# optimizations may be expensive. With these halves in use each such call took 80 to 200 ns, not 10.
FLAGS = ("-Og", "-fexpensive-optimizations", "-march=native")
LITTLE_WORK = 1 << 21  # of a kernel in a golden case, which a C compiler need not make faster
WORK_OF_ONE = 1 << 32  # of all of them, which one thread does before a C compiler has made more

NO_GOLDEN = (
    "no golden case, so the bundle cannot be verified: a C compiler, or the ziglang package, "
    "is needed to make one"
)

NO_MEMORY = (
    "no golden case, so the bundle cannot be verified: it takes more memory than there is ({}); "
    "export where there is more, or compare with the model by verify --against"
)

NO_OUTPUTS = (
    "entry {!r} has no outputs, so no golden case checks it: keep an output that feeds a state by "
    ":keep, or compare with the model by verify --against"
)

PROVES_LITTLE = (
    "the golden case of entry {!r} proves little of a device: of generated inputs, {} everywhere; "
    "give real ones by --golden-input NAME=FILE.npy"
)


def make_goldens(
    source: Graphs,
    program: Program,
    steps: int = 1,
    given: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    warn: Warn | None = None,
) -> list[Golden]:
    """A case for each entry that has outputs: what plain C kernels in double precision give after
    `steps` runs from the initial states, rounded to fp16 between kernels as in the bundle.

    Warns of an entry that has none: without outputs, or where the case takes more than the limits
    or this machine's memory allow, and of all of them without a C compiler. Warns of cases that
    prove little, and where fp16 makes a difference that is notable.
    """
    from tinyedge.export.verify import fp16, states
    from tinyedge.export.verify.estimate import beyond

    say, allowed = warn or log.warning, limits or Limits()
    precision = program.options["precision"]
    options = Options(
        False,
        precision=precision,
        fp64_reference=True,
        folded_work=allowed.folded_work,
        folded_growth=allowed.folded_growth,
    )
    cpu = find_target("cpu")
    if precision == "fp16":
        cpu = fp16.reference(cpu, find_target(program.target).caps(program.options["profile"]))
    compiled = compile_graph(source, cpu, options)
    assert compiled.program is not None
    names = []
    for entry in program.entries:
        reason = beyond(compiled, entry.name, steps, allowed)
        if not entry.outputs or reason:
            say(reason if entry.outputs else NO_OUTPUTS.format(entry.name))
        else:
            names.append(entry.name)
    if not names:
        return []
    try:
        device = _golden_device(compiled.program, steps)
    except DeviceError:
        say(NO_GOLDEN)
        return []
    try:
        with Replay(compiled.program, device) as replay:
            cases = [_golden(program, replay, name, steps, given, say) for name in names]
            if precision == "fp16":
                for number, case in enumerate(cases):
                    with _counted(case.entry):
                        cases[number] = fp16.expecting(program, compiled, replay, case, say)
            else:
                updating = {name for name, graph in source.entries.items() if graph.updates}
                for number, case in enumerate(cases):
                    if case.entry in updating and len(case.outputs) + len(program.states) <= PORTS:
                        cases[number] = states.telling(program, replay, case)
            return cases
    except (DeviceError, MemoryError) as error:
        if isinstance(error, DeviceError) and error.id != "device.memory":
            raise
        say(NO_MEMORY.format(error.because if isinstance(error, DeviceError) else error))
        return []


def _golden_device(program: Program, steps: int) -> Any:
    """The processor, for kernels that run `steps` times: to make these faster, or threads for
    them, would take a C compiler longer than they run.
    """
    module = importlib.import_module("tinyedge.targets.cpu.device")
    return module.open(
        requirements=program.requirements,
        optimization=FLAGS,
        threads=1 if module.work(program).total() < WORK_OF_ONE // steps else None,
        little_work=LITTLE_WORK // steps,
    )


def _golden(
    program: Program,
    replay: Replay,
    entry: str,
    steps: int,
    given: Mapping[str, Any] | None,
    say: Warn,
) -> Golden:
    """One entry's case, with generated integers that are small where others say nothing."""
    from tinyedge.export.bundle import golden

    half = program.options.get("precision") == "fp16" or golden.has_fp16(program)
    tolerance = golden.FLOAT16_TOLERANCE if half else golden.FLOAT32_TOLERANCE
    of_nodes = entry in program.options.get("nodes", ())
    ports = program.inputs_of(golden.find_entry(program, entry)).values()
    small = {p.name: (0, 1) for p in ports if dtypes.by_name(p.dtype).is_int}
    for ranges in ({}, small) if small else ({},):
        with _counted(entry):
            case = golden.make(
                program,
                replay.run,
                made="cpu, unoptimized, double",
                entry=entry,
                steps=steps,
                tolerance=max(tolerance, NODES_TOLERANCE) if of_nodes else tolerance,
                ranges=ranges,
                given=given,
                reset=replay.reset,
            )
        if all(_is_finite(np.asarray(output.data)) for output in case.outputs):
            break
    found = zip(golden.find_entry(program, entry).outputs, case.outputs, strict=True)
    constant = [f"{name!r} is {c}" for name, o in found if (c := _constant(o.data)) is not None]
    if constant and not of_nodes and any(record.data is None for record in case.inputs):
        say(PROVES_LITTLE.format(entry, ", ".join(constant)))
    return case


@contextlib.contextmanager
def _counted(entry: str) -> Iterator[None]:
    """Counts that do not fit, in a case's run, are the fault of its inputs."""
    try:
        yield
    except RunError as error:
        if error.id != "replay.count":
            raise
        raise InputError(
            f"the golden case of entry {entry!r}",
            f"of its inputs, {error.subject}: {error.because}",
            id="golden.count",
            next="give real inputs with --golden-input NAME=FILE.npy, or a greater --bound",
        ) from error


def _is_finite(values: Any) -> bool:
    """Whether expected values are not all NaN or infinite, as masks of odd values make them."""
    return values.dtype.kind != "f" or not values.size or bool(np.isfinite(values).any())


def _constant(values: Any) -> str | None:
    """What expected floats all are, if one value: a single one is only told where it is 0, NaN or
    infinite.
    """
    if values.dtype.kind != "f" or not values.size:
        return None
    first = values.reshape(-1)[0]
    same = np.array_equal(values, np.full_like(values, first), equal_nan=True)
    telling = values.size == 1 and np.isfinite(first) and first != 0
    return str(first) if same and not telling else None
