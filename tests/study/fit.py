"""Fits the constants of the cost rules to measurements: of tiles, and of Winograd's method.

Each convolution and product of some networks is compiled alone with every candidate tile, and run
on one thread; a constant is good if the tile that the rule then chooses takes little more time than
the fastest one. The constants are searched on a grid, since the choice jumps with them and has no
slope. FEW_GROUPS is not fitted: it is about threads.

A time changes from one compile, run or neighbor on the machine to the next, by more where a kernel
is bound by memory. So all kernels of a shape are measured in turn for some rounds, each opened
anew, and the least counts; how far the rounds lie apart is what a difference must exceed.
"""

from __future__ import annotations

import inspect
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import numpy as np
import onnx

from tests.study import networks
from tests.study.sides import Say
from tinyedge.choices import choose_options, find_target
from tinyedge.core.compiler import winograd
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.optimize import tiles
from tinyedge.core.program.program import Launch, Program
from tinyedge.core.program.replay import Replay
from tinyedge.export.options import choose_import
from tinyedge.export.source import source_of
from tinyedge.targets.cpu import device
from tinyedge.targets.cpu.caps import PROFILES
from tinyedge.targets.cpu.compiler import find

MODELS = ("resnet18", "mobilenet_v2", "vit_tiny", "unet")
GRIDS: Mapping[str, Sequence[float]] = {
    "SUMS_IN_FLIGHT": (4, 6, 8, 10, 12, 16, 20),
    "SUMS_SPILLED": (8, 10, 12, 14, 16, 20),
    "load_cost": (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0),
}
WINOGRAD_GRIDS: Mapping[str, Sequence[float]] = {
    "TRANSFORM": (4.0, 6.0, 8.0, 12.0, 16.0, 24.0),
    "FILTER": (2.0, 4.0, 8.0, 16.0, 32.0),
    "LEAST_GAIN": (1.0, 1.1, 1.25, 1.5),
}
PLAIN = "plain"
# of a tile, but for the device and how many products there are
ASKED = ("extent", "columns", "total", "taps", "most", "step", "alone")
SMALL_GAIN = 0.005  # of the mean loss: constants are left as they are for less
ROUNDS = 3  # in which each kernel of a shape is measured, in turn with the others

Tile = tuple[int, int]
Constants = Mapping[str, float]
Inputs = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """A convolution or product with a constant filter."""

    name: str
    function: Any  # of tensors; or the file of a whole network
    inputs: Inputs
    convolution: tuple[int, ...] = ()  # channels, filters, height, width, of 3 x 3 by steps of 1


Make = Callable[[Any, tuple[int, ...], tuple[int, ...]], Shape | None]


@dataclass
class Measured:
    """Seconds of one shape by what was generated for it."""

    shape: Shape
    calls: list[tuple[Any, ...]] = field(default_factory=list)  # of the rule, in its compile
    seconds: dict[str, float] = field(default_factory=dict)  # by the kernels' text
    rounds: dict[str, list[float]] = field(default_factory=dict)  # the same, of each round
    programs: dict[str, Program] = field(default_factory=dict)
    tiles: dict[Tile, str] = field(default_factory=dict)  # the text of each candidate
    chosen: dict[Any, str] = field(default_factory=dict)  # the text, by what the rule answers
    compiling: dict[str, float] = field(default_factory=dict)  # seconds, where they count
    taken: Callable[[Program, Inputs, int], float] | None = None  # by default, `seconds_of`

    @property
    def best(self) -> float:
        return min(self.seconds.values())

    def loss(self, text: str) -> float:
        """How much longer than the fastest, as a part of it."""
        return self.seconds[text] / self.best - 1

    def unknown(self, text: str) -> float:
        """How far `loss` may be off: what the rounds of this kernel and of the fastest differ by,
        without the slowest round of each, as a part of the least.
        """
        best = min(self.seconds, key=self.seconds.__getitem__)
        return sum(_spread(self.rounds.get(each, ())) for each in {text, best})

    def measure(self, texts: Iterable[str], runs: int) -> None:
        """Measure kernels for a round each."""
        for text in texts:
            taken = self.taken or seconds_of
            seconds = taken(self.programs[text], self.shape.inputs, runs)
            self.rounds.setdefault(text, []).append(seconds)
            self.seconds[text] = min(self.rounds[text])


def _spread(rounds: Sequence[float]) -> float:
    kept = sorted(rounds)[: max(1, len(rounds) - 1)]
    return kept[-1] / kept[0] - 1 if kept else 0.0


def shapes(models: Sequence[str], make: Make | None = None) -> list[Shape]:
    """The different contractions of networks, those with a filter for all channels, or those of
    which `make` makes a shape, by the node and the shapes of its operands.
    """
    make = make or contraction
    found: dict[str, Shape] = {}
    for model in models:
        graph = onnx.shape_inference.infer_shapes(networks.NETWORKS[model]()).graph
        known = {each.name: tuple(each.dims) for each in graph.initializer}
        for value in (*graph.input, *graph.value_info, *graph.output):
            dims = value.type.tensor_type.shape.dim
            known[value.name] = tuple(dim.dim_value for dim in dims)
        weights = {each.name for each in graph.initializer}
        for node in graph.node:
            if node.op_type in ("Conv", "Gemm", "MatMul") and node.input[1] in weights:
                shape = make(node, known[node.input[0]], known[node.input[1]])
                if shape is not None:
                    found.setdefault(shape.name, shape)
    return list(found.values())


def contraction(node: Any, x: tuple[int, ...], w: tuple[int, ...]) -> Shape | None:
    given = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    if 0 in (*x, *w) or given.get("group", 1) != 1:
        return None
    if node.op_type == "Conv":
        stride, pads = given["strides"][0], given.get("pads", [0, 0, 0, 0])
        return convolution(x, w, stride, pads[0])
    if node.op_type == "Gemm" and given.get("transB"):
        w = w[::-1]
    return product(int(np.prod(x[:-1])), *w)


def convolution(x: tuple[int, ...], w: tuple[int, ...], stride: int, pad: int) -> Shape:
    weight = random(w)
    _, channels, height, width = x
    filters, _, taps, _ = w
    same = taps == winograd.TAPS and stride == 1 and pad == 1

    def convolve(x: Any) -> Any:
        from tinyedge import Tensor

        return x.conv(Tensor.weight("w", weight), strides=(stride,) * 2, pads=((pad, pad),) * 2)

    return Shape(
        f"{channels}x{height}x{width}, {taps}x{taps}/{stride} to {filters}",
        convolve,
        {"x": random(x)},
        (channels, filters, height, width) if same else (),
    )


def product(rows: int, depth: int, columns: int) -> Shape:
    weight = random((depth, columns))
    return Shape(
        f"{rows}x{depth} by {depth}x{columns}",
        lambda x: x @ weight,
        {"x": random((rows, depth))},
    )


def random(shape: Sequence[int]) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


# Measuring.


@contextmanager
def constants(module: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """A module with other values of some names."""
    with ExitStack() as stack:
        for name, value in values.items():
            stack.enter_context(mock.patch.object(module, name, value))
        yield


@contextmanager
def rule(profile: str, values: Constants) -> Iterator[None]:
    """The rule of tiles with other constants: of the module, and of the profile."""
    caps = replace(PROFILES[profile], load_cost=values["load_cost"])
    sums = {name: values[name] for name in ("SUMS_IN_FLIGHT", "SUMS_SPILLED")}
    with constants(tiles, sums), mock.patch.dict(PROFILES, {profile: caps}):
        yield


def tile_constants(profile: str) -> dict[str, float]:
    """Those of now."""
    return {
        "SUMS_IN_FLIGHT": tiles.SUMS_IN_FLIGHT,
        "SUMS_SPILLED": tiles.SUMS_SPILLED,
        "load_cost": PROFILES[profile].load_cost,
    }


def compiled(shape: Shape, profile: str, growth: float = 0.0, *, target: str = "cpu") -> Program:
    """A shape alone. growth: 0: without Winograd's method, but for whole networks."""
    options = choose_options(target, profile=profile)
    if callable(shape.function):
        options = replace(options, winograd=growth)
        graph, *_ = source_of((shape.function, shape.inputs), choose_import())
    else:
        graph, *_ = source_of(shape.function, choose_import())
    program = compile_graph(graph, find_target(target), options).program
    assert program is not None
    return program


def text_of(program: Program) -> str:
    return "\n".join(kernel.source for kernel in program.kernels)


def seconds_of(program: Program, inputs: Inputs, runs: int) -> float:
    """The least of some runs of all launches, each by itself, on one thread, compiled with the
    instruction sets of the program's profile and no others. Seconds of the processor: what else
    runs on the machine takes none of them.
    """
    sets = find_target("cpu").requires[str(program.options["profile"])]
    flags = ("-O2", *(f"-m{word}" for word in sets if word != "neon"))
    clock = mock.Mock(perf_counter=time.thread_time)
    with (
        constants(device, {"time": clock}),
        Replay(program, device.open(threads=1, optimization=flags)) as replay,
    ):
        every = [
            [seconds for step, seconds in replay.profile(inputs) if isinstance(step, Launch)]
            for _ in range(runs)
        ]
    return sum(map(min, zip(*every, strict=True)))


def candidates(profile: str, extents: Sequence[int] = (), dense: bool = False) -> list[Tile]:
    """Tiles that fit the registers; but where all are wanted, of each width the two tallest, one of
    half their height, and the tallest without waste for each of some extents.
    """
    every = list(tiles._tiles(find_target("cpu").caps(profile), 1))
    if dense:
        return every
    heights: dict[int, list[int]] = {}
    for rows, across in every:
        heights.setdefault(across, []).append(rows)
    found = []
    for across, listed in heights.items():
        even = (max(rows for rows in listed if not extent % rows) for extent in extents)
        found += [(a, across) for a in sorted({*listed[-2:], len(listed) // 2 + 1, *even})]
    return [tile for tile in found if tile in every]


def only(tile: tuple[int, int]) -> dict[str, Any]:
    """What makes a tile the only one there is, for `constants` of the compiler's tiles."""
    return {"_tiles": lambda *_, **__: [tile]}


def measure_tiles(shape: Shape, profile: str, dense: bool, runs: int) -> Measured:
    """A shape with each candidate tile, and with the rule's own."""
    found = Measured(shape)

    def recorded(*given: Any, **named: Any) -> tuple[float, int, int]:
        asked = question.bind(*given, **named)
        asked.apply_defaults()
        found.calls.append(tuple(asked.arguments[name] for name in ASKED))
        return original(*given, **named)

    original = tiles._tile_size
    question = inspect.signature(original)
    with constants(tiles, {"_tile_size": recorded}):
        own = compiled(shape, profile)
    found.chosen[_answers(found, profile)] = _add(found, own)
    for tile in candidates(profile, _extents(found), dense):
        with constants(tiles, only(tile)):
            if any(_fits(tile, call) for call in found.calls):
                found.tiles[tile] = _add(found, compiled(shape, profile))
    for _ in range(ROUNDS):
        found.measure(found.programs, runs)
    return found


def _extents(found: Measured) -> list[int]:
    """Those along which rows of tiles may lie; the width of panels is asked for many rows."""
    return sorted({call[0] for call in found.calls} - {tiles.MANY_ROWS})


def _fits(tile: Tile, call: Sequence[Any]) -> bool:
    return call[1] % tile[1] == 0


def _add(found: Measured, program: Program) -> str:
    text = text_of(program)
    found.programs.setdefault(text, program)
    return text


def _timed(found: Measured, program: Program, runs: int) -> str:
    """A program's text; a new one is measured in turn with the fastest until then."""
    text = _add(found, program)
    if text not in found.seconds:
        best = min(found.seconds, key=found.seconds.__getitem__)
        for _ in range(ROUNDS):
            found.measure((best, text), runs)
    return text


def _answers(found: Measured, profile: str) -> Any:
    """What the rule says with the constants of now: the same answers make the same kernels."""
    answers = [answer(call, profile) for call in found.calls]
    order = sorted(range(len(answers)), key=lambda n: answers[n][0])
    return tuple(answer[1:] for answer in answers), tuple(order)


def answer(call: Sequence[Any], profile: str) -> tuple[float, int, int]:
    """What the rule says to a question of a compile, whose arguments are those in ASKED."""
    return tiles._tile_size(**dict(zip(ASKED, call, strict=True)), caps=PROFILES[profile])


def chosen_text(found: Measured, profile: str, values: Constants, runs: int) -> str:
    """What the rule makes of a shape with some constants; measured if it is new."""
    with rule(profile, values):
        answers = _answers(found, profile)
        if answers not in found.chosen:
            found.chosen[answers] = _timed(found, compiled(found.shape, profile), runs)
    return found.chosen[answers]


def agreement(found: Measured, profile: str, values: Constants) -> float:
    """The correlation of ranks, by cost and by seconds, of the candidate tiles (Spearman's)."""
    costs, seconds = [], []
    asked = [call for call in found.calls if call[0] != tiles.MANY_ROWS] or found.calls
    for tile, text in found.tiles.items():
        with rule(profile, values), constants(tiles, only(tile)):
            costs.append(min(answer((n, tile[1], *more), profile)[0] for n, _, *more in asked))
        seconds.append(found.seconds[text])
    if len(set(costs)) < 2 or len(set(seconds)) < 2:
        return 1.0
    ranks = [np.argsort(np.argsort(each)) for each in (costs, seconds)]
    return float(np.corrcoef(*ranks)[0, 1])


# Winograd's method: the alternatives are the plain sum and each transform.


def measure_winograd(shape: Shape, profile: str, runs: int) -> Measured:
    """A convolution of 3 x 3 as a plain sum and by each transform that its sizes allow."""
    found = Measured(shape)
    found.programs[PLAIN] = compiled(shape, profile)
    for transform in winograd.TRANSFORMS:
        _, _, height, width = shape.convolution
        if height % transform.side or width % transform.side:
            continue
        free = {"TRANSFORMS": (transform,), "LEAST_GAIN": 0.0, "TRANSFORM": 0.0, "FILTER": 0.0}
        with constants(winograd, free):
            program = compiled(shape, profile, growth=1e9)
        found.programs[f"F{transform.side}"] = program
    for _ in range(ROUNDS):
        found.measure(found.programs, runs)
    return found


def chosen_transform(found: Measured, values: Constants) -> str:
    """What the rule takes with some constants: the transform that saves most, or the plain sum."""
    channels, filters, height, width = found.shape.convolution
    case = winograd._Convolution(None, None, 1, channels, filters, height, width)  # type: ignore[arg-type]
    with constants(winograd, values):
        saved = {f"F{t.side}": gain for t, gain in winograd._worthwhile(case)}
    return max(saved, key=saved.__getitem__, default=PLAIN)


# The report.


def search(
    grids: Mapping[str, Sequence[float]],
    now: Constants,
    loss: Callable[[Constants], float],
    unknown: float = 0.0,
) -> tuple[dict[str, float], dict[str, float]]:
    """The constants of least loss, nearest to those of now; and the losses of both. unknown: how
    far losses may be off; for a smaller gain the constants stay.
    """
    points = [
        dict(zip(grids, values, strict=True)) for values in itertools.product(*grids.values())
    ]
    before = loss(now)
    losses = [(loss(point), point) for point in points]
    least = min(each for each, _ in losses)
    near = [point for each, point in losses if each <= least + 1e-9]

    def distance(point: Constants) -> float:
        return sum(abs(np.log(point[name] / now[name])) for name in point)

    if before <= least + max(SMALL_GAIN, unknown):
        return dict(now), {"now": before, "fitted": before, "least": least}
    return min(near, key=distance), {"now": before, "fitted": least, "least": least}


def head(models: Sequence[str], target: str, profile: str) -> dict[str, Any]:
    """Of the report: what was measured by what."""
    versions = {"compiler": find().version} if target == "cpu" else {}
    return {
        "study": "fit",
        "versions": versions,
        "target": target,
        "profile": profile,
        "models": list(models),
    }


def measure(
    models: Sequence[str], profile: str, dense: bool, runs: int, say: Say
) -> dict[str, Any]:
    """Of the report: a row for each shape, and the constants before and after."""
    found, transformed = [], []
    for shape in shapes(models):
        say(f"tiles of {shape.name}")
        found.append(measure_tiles(shape, profile, dense, runs))
        if shape.convolution:
            say(f"transforms of {shape.name}")
            transformed.append(measure_winograd(shape, profile, runs))

    def tile_loss(values: Constants) -> float:
        texts = [chosen_text(each, profile, values, runs) for each in found]
        return float(np.mean([m.loss(text) for m, text in zip(found, texts, strict=True)]))

    def winograd_loss(values: Constants) -> float:
        each = [m.loss(chosen_transform(m, values)) for m in transformed]
        return float(np.mean(each)) if each else 0.0

    now = tile_constants(profile)
    off = float(np.mean([m.unknown(chosen_text(m, profile, now, runs)) for m in found]))
    fitted, losses = search(GRIDS, now, tile_loss, off)
    before = {name: getattr(winograd, name) for name in WINOGRAD_GRIDS}
    after, gains = search(WINOGRAD_GRIDS, before, winograd_loss)
    return {
        "tiles": {"now": now, "fitted": fitted, "loss": losses, "unknown": off},
        "winograd": {"now": before, "fitted": after, "loss": gains},
        "agreement": {
            "now": float(np.mean([agreement(each, profile, now) for each in found])),
            "fitted": float(np.mean([agreement(each, profile, fitted) for each in found])),
        },
        "shapes": [_tile_row(each, profile, now, fitted, runs) for each in found],
        "transforms": [_transform_row(each, before, after) for each in transformed],
    }


def _tile_row(
    found: Measured, profile: str, now: Constants, fitted: Constants, runs: int
) -> dict[str, Any]:
    names = {text: f"{rows}x{across}" for (rows, across), text in found.tiles.items()}
    row: dict[str, Any] = {"shape": found.shape.name, "tried": len(found.seconds)}
    best = min(found.seconds, key=found.seconds.__getitem__)
    row |= {"best": names.get(best, "other"), "best_seconds": found.best}
    for word, values in (("now", now), ("fitted", fitted)):
        text = chosen_text(found, profile, values, runs)
        row |= {word: names.get(text, "other"), f"{word}_loss": found.loss(text)}
        row[f"{word}_unknown"] = found.unknown(text)
    return row


def _transform_row(found: Measured, now: Constants, fitted: Constants) -> dict[str, Any]:
    row: dict[str, Any] = {"shape": found.shape.name, "seconds": found.seconds}
    for word, values in (("now", now), ("fitted", fitted)):
        taken = chosen_transform(found, values)
        row |= {word: taken, f"{word}_loss": found.loss(taken)}
        row[f"{word}_unknown"] = found.unknown(taken)
    return row
