"""More models: recurrent, quantized, with branches, of torch's exporters, of the onnx wheel.

Beside those of `cases` these keep states from run to run, have inputs that are fixed at export, or
bounds of their own on how near two right answers are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests import models
from tests.realmodels import inputs as draw
from tests.realmodels import weights
from tests.realmodels.inputs import Array, Arrays

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Symbolic:
    """One bundle for many sizes."""

    dims: Mapping[str, int | str]  # as of `--dim`
    sizes: tuple[tuple[int, ...], ...]  # arguments of the entry's `feeds`


@dataclass(frozen=True)
class Entry:
    """A model at fixed sizes."""

    load: Callable[[], Any]  # its file, or the model
    feeds: Callable[..., Sequence[Arrays]]  # inputs of consecutive runs, of given sizes
    size: tuple[int, ...] = ()
    dims: Mapping[str, int | str] = field(default_factory=dict)
    # of each input that is kept, the output that feeds it
    states: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, float] = field(default_factory=dict)  # inputs that are fixed at export
    symbolic: Symbolic | None = None
    plain: bool = False  # compared with what onnxruntime computes without its optimizer
    tolerance: float = TOLERANCE  # of the greatest value of an output
    chosen: str = ""  # an output whose greatest entry along the last axis is the same


def _stored(name: str) -> Callable[[], Path]:
    return lambda: models.path(name)


def _exported(name: str) -> Callable[[], Any]:
    return lambda: weights.filled(onnx.load(weights.EXPORTS / f"{name}.onnx"))


def _topology(name: str) -> Callable[[], Any]:
    return lambda: weights.topology(name)


STEPS = 20


def _speech(chunk: int) -> list[Arrays]:
    """Chunks of a voice's tones, each after the end of the one before it: an eighth as much."""
    samples = draw.sweep(STEPS * chunk, 90.0, 300.0, 32 * chunk)[0]
    padded = np.concatenate([np.zeros(chunk // 8, np.float32), samples])
    ends = [(n + 1) * chunk + chunk // 8 for n in range(STEPS)]
    return [{"input": padded[None, end - chunk - chunk // 8 : end]} for end in ends]


def _with_rate(chunk: int, rate: int) -> list[Arrays]:
    return [{**feeds, "sr": np.array(rate)} for feeds in _speech(chunk)]


def _speech_at_once(steps: int) -> list[Arrays]:
    chunks = np.concatenate([feeds["input"] for feeds in _speech(512)])[:steps]
    zeros = np.zeros((1, 1, 128), np.float32)
    return [{"input": chunks, "h": zeros, "c": zeros}]


KEPT = {"state": "stateN:keep"}
AT_16K: Mapping[str, Any] = {
    "feeds": lambda: _speech(512),
    "dims": {"sequence": 576, "batch": 1},
    "states": KEPT,
}


def _text(width: int) -> list[Arrays]:
    return [{"input1": 2 * draw.line(64, width, 5)[None, None] - 1}]


CAPTCHA: Mapping[str, Any] = {
    "feeds": _text,
    "size": (160,),
    "dims": {"image_width": 160},
    "symbolic": Symbolic({"image_width": "64..320:8"}, ((160,), (64,), (320,))),
}


def _photograph(height: int, width: int) -> Array:
    """A picture of a head with the mean and deviation of its training data: [1, 3, H, W]."""
    image = draw.channels_first(draw.picture(height, width)) / 255
    mean = np.array([0.485, 0.456, 0.406], np.float32).reshape(1, 3, 1, 1)
    deviation = np.array([0.229, 0.224, 0.225], np.float32).reshape(1, 3, 1, 1)
    return np.asarray((image - mean) / deviation, np.float32)


def _mel() -> Array:
    """What smart-turn gets: the logarithms of 80 bands of 8 seconds, [1, 80, 800]."""
    band, time = np.mgrid[0:80, 0:800].astype(np.float32)
    voice = np.cos(band / 5 + np.sin(time / 40)) * (time % 200 < 150)
    grain = np.random.default_rng(4).normal(0, 0.1, (80, 800))
    return (0.6 * voice - band / 160 + grain)[None].astype(np.float32)


def _numbers(name: str, high: int) -> Callable[[int, int], list[Arrays]]:
    def made(batch: int, length: int) -> list[Arrays]:
        return [{name: np.random.default_rng(length).integers(0, high, (batch, length))}]

    return made


def _lengths(steps: int) -> list[Arrays]:
    x = np.random.default_rng(steps).standard_normal((3, steps, 6)).astype(np.float32)
    return [{"x": x, "lengths": np.array([steps, max(1, steps - 1), 1])}]


def _of_torch(name: str) -> dict[str, Entry]:
    """What both exporters make of a model of `tests/exporters/torch_files.py`."""
    words = {"batch": "1..4", "length": "1..24"}
    known: dict[str, dict[str, Any]] = {
        "tagger": {
            "feeds": _numbers("words", 200),
            "size": (2, 7),
            "dims": {"batch": 2, "length": 7},
            "symbolic": Symbolic(words, ((2, 7), (1, 1), (4, 24))),
        },
        "vit": {
            "feeds": lambda batch: [{"image": np.tile(_photograph(48, 48), (batch, 1, 1, 1))}],
            "size": (2,),
            "dims": {"batch": 2},
            "symbolic": Symbolic({"batch": "1..4"}, ((1,), (4,))),
        },
        "gpt": {
            "feeds": _numbers("tokens", 120),
            "size": (2, 13),
            "dims": {"batch": 2, "length": 13},
            "symbolic": Symbolic({**words, "length": "1..64"}, ((2, 13), (1, 1), (4, 64))),
        },
        "unet": {
            "feeds": lambda height, width: [{"image": _photograph(height, width)}],
            "size": (32, 40),
            "dims": {"height": 32, "width": 40},
            "symbolic": Symbolic(
                {"height": "8..64:4", "width": "8..64:4"}, ((32, 40), (8, 8), (64, 12))
            ),
        },
        "packed_gru": {
            "feeds": _lengths,
            "size": (9,),
            "dims": {"length": 9},
            "symbolic": Symbolic({"length": "1..12"}, ((9,), (1,), (12,))),
        },
        "detector": {"feeds": lambda: [{"image": _photograph(64, 64)}]},
    }
    exporters = ("traced",) if name == "packed_gru" else ("traced", "dynamo")
    return {f"{name}.{e}": Entry(_exported(f"{name}.{e}"), **known[name]) for e in exporters}


# Quantized models round at every layer: where a value lies at the edge between two codes, the order
# of a sum decides. Their tolerance is how far onnxruntime is from itself, on these inputs.
# smart_turn: 2.6e-3, with its optimizer (which multiplies codes, not what they stand for) and
# without; and 1.2e-3 if the last bits of its input change.
# common_old, whose LSTM quantizes the state anew in each of 40 steps: 2.6e-2 if its input changes
# by a millionth, as sums in another order do.
# tests/export/test_models.py compares both part by part, each given what onnxruntime gives it,
# within 1e-4.
ENTRIES: dict[str, Entry] = {
    "silero": Entry(
        _stored("silero"),
        lambda: _speech(512),
        dims={"input[1]": 576, "state[1]": 1},
        states=KEPT,
        constants={"sr": 16000},
    ),
    "silero.8k": Entry(
        _stored("silero"),
        lambda: _speech(256),
        dims={"input[1]": 288, "state[1]": 1},
        states=KEPT,
        constants={"sr": 8000},
    ),
    "silero_ifless": Entry(
        _stored("silero_ifless"), **{**AT_16K, "feeds": lambda: _with_rate(512, 16000)}
    ),
    "silero_16k": Entry(
        _stored("silero_16k"), **{**AT_16K, "feeds": lambda: _with_rate(512, 16000)}
    ),
    "silero_half": Entry(_stored("silero_half"), **AT_16K),
    "silero_openvino": Entry(_stored("silero_openvino"), **{**AT_16K, "dims": {}}),
    "silero_sequence": Entry(
        _stored("silero_sequence"),
        _speech_at_once,
        (STEPS,),
        {"sequence_length": STEPS},
        symbolic=Symbolic({"sequence_length": "1..32"}, ((20,), (1,), (7,))),
    ),
    "common": Entry(_stored("common"), **CAPTCHA),
    "common_old": Entry(_stored("common_old"), tolerance=2.6e-2, chosen="387", **CAPTCHA),
    "slider": Entry(
        _stored("slider"),
        lambda: [{"images": draw.channels_first(draw.picture(640, 640)) / np.float32(255)}],
    ),
    "smart_turn": Entry(
        _stored("smart_turn"),
        lambda: [{"input_features": _mel()}],
        plain=True,
        tolerance=2.6e-3,
    ),
    **_of_torch("tagger"),
    **_of_torch("vit"),
    **_of_torch("gpt"),
    **_of_torch("unet"),
    **_of_torch("packed_gru"),
    **_of_torch("detector"),
    **{
        name: Entry(_topology(name), lambda name=name: [{_data(name): _photograph(224, 224)}])
        for name in weights.names()
    },
}
SYMBOLIC = {name: entry.symbolic for name, entry in ENTRIES.items() if entry.symbolic is not None}


def _data(name: str) -> str:
    """What a topology calls its input."""
    graph = onnx.load(weights.TOPOLOGIES / f"light_{name}.onnx").graph
    stored = {tensor.name for tensor in graph.initializer}
    (first,) = (value.name for value in graph.input if value.name not in stored)
    return str(first)


def feeds(name: str, size: tuple[int, ...] | None = None) -> Sequence[Arrays]:
    """The inputs of consecutive runs: of the fixed sizes, or of `size`."""
    entry = ENTRIES[name]
    return entry.feeds(*(entry.size if size is None else size))


@cache
def _session(file: Path, plain: bool) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if plain:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def expected(name: str, file: Path, size: tuple[int, ...] | None = None) -> list[Arrays]:
    """What onnxruntime computes in each run of `feeds(name, size)`."""
    return reference(name, file, feeds(name, size))


def reference(name: str, file: Path, runs: Sequence[Arrays]) -> list[Arrays]:
    """What onnxruntime computes in consecutive runs, with the states by hand."""
    entry = ENTRIES[name]
    runner = _session(file, entry.plain)
    names = [port.name for port in runner.get_outputs()]
    ports = {port.name: port for port in runner.get_inputs()}
    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
    given = {n: np.array(v, kinds[ports[n].type]) for n, v in entry.constants.items()}
    states = {name: np.zeros((2, 1, 128), np.float32) for name in entry.states}
    made = []
    for arrays in runs:
        outputs = dict(zip(names, runner.run(None, {**arrays, **given, **states}), strict=True))
        states = {state: outputs[entry.states[state].split(":")[0]] for state in states}
        made.append(outputs)
    return made


def export(
    name: str,
    file: Path,
    out: Path,
    *,
    target: str,
    symbolic: bool = False,
    precision: str | None = "fp32",
) -> Path:
    """A model's bundle. Raises TinyedgeError."""
    import tinyedge

    entry = ENTRIES[name]
    return tinyedge.export_onnx(
        file,
        target=target,
        out=out,
        dims=dict(SYMBOLIC[name].dims if symbolic else entry.dims),
        constants=entry.constants,
        states=entry.states,
        precision=precision,
        golden=False,
        warn=lambda _: None,
    )
