"""The results as text: for a terminal, and as Markdown."""

from __future__ import annotations

from tests.bench import report
from tests.bench.opencl.compare import IMAGES, MAIN, OURS, PEER, PROCESSOR
from tests.bench.report import MISSING, Result, Table, number, ratio, value
from tests.study import plot

SIDES = {side.name: side for side in (*MAIN, *IMAGES)}
PYTHON = MAIN[2]


def tables(result: Result) -> list[Table]:
    """(title, headings, rows). Ratios are tinyedge over tinygrad."""
    return [_main(result), _images(result)]


def _main(result: Result) -> Table:
    rows = []
    for entry in result["models"]:
        ours, peer = (entry["sides"].get(side.name, {}) for side in (OURS, PEER))
        python, wide = (entry["sides"].get(side.name, {}) for side in (PYTHON, PROCESSOR))
        rows.append(
            [
                f"{entry['model']} {entry['size']}",
                _pair(ours, peer, "cpu", "median", scale=1e3),
                ratio(value(ours, "cpu", "median"), value(peer, "cpu", "median")),
                ratio(value(ours, "cpu", "median"), value(peer, "replay", "median")),
                ratio(value(python, "cpu", "median"), value(peer, "cpu", "median")),
                ratio(value(wide, "cpu", "median"), value(peer, "cpu", "median")),
                _pair(ours, peer, "launches"),
                _pair(ours, peer, "bytes", scale=1e-6),
                _pair(ours, peer, "cold"),
                _pair(ours, peer, "warm"),
                _shown(ours, "export", "cpu"),
                _pair(ours, peer, "difference"),
            ]
        )
    headings = [
        "model",
        "CPU ms a run",
        "ratio",
        "of its replay",
        "by Python",
        "`processor`",
        "launches",
        "buffers, MB",
        "CPU s to the first output",
        "with kernels kept",
        "export, CPU s",
        "off by",
    ]
    return f"tinyedge / tinygrad {result['peer']}, both on PoCL", headings, rows


def _images(result: Result) -> Table:
    rows = []
    for entry in result["models"]:
        sides = entry["sides"]
        row = [f"{entry['model']} {entry['size']}"]
        for side in (OURS, *IMAGES):
            row.append(_shown(sides.get(side.name, {}), "cpu", "median", scale=1e3))
        row += [
            _shown(sides.get(side.name, {}), "difference")
            for side in IMAGES
            if side.precision == "fp16"
        ]
        if any(side.name in sides for side in IMAGES):
            rows.append(row)
    halves = [f"{side.name}: off by" for side in IMAGES if side.precision == "fp16"]
    headings = ["model", "buffers, fp32, PoCL", *(side.name for side in IMAGES), *halves]
    return "CPU ms a run of bundles with images", headings, rows


def _shown(facts: Result, *path: str, scale: float = 1.0) -> str:
    found = value(facts, *path)
    if found is None:
        return MISSING
    if path[0] == "difference":
        return f"{found:.0e}"
    return number(found * scale if scale != 1 else found)


def _pair(ours: Result, peer: Result, *path: str, scale: float = 1.0) -> str:
    return " / ".join(_shown(facts, *path, scale=scale) for facts in (ours, peer))


def plots(result: Result) -> dict[str, str]:
    """SVG by file name: tinyedge's CPU seconds as parts of tinygrad's."""
    compared = {
        "a run": (("cpu", "median"), ("cpu", "median")),
        "a run, of its replay": (("cpu", "median"), ("replay", "median")),
        "to the first output": (("cold",), ("cold",)),
        "with kernels kept": (("warm",), ("warm",)),
    }
    series = []
    for name, paths in compared.items():
        parts = []
        for entry in result["models"]:
            ours, peer = (
                value(entry["sides"].get(side.name, {}), *path)
                for side, path in zip((OURS, PEER), paths, strict=True)
            )
            parts.append(ours / peer if ours is not None and peer else None)
        if any(parts):
            series.append(plot.Bars(name, parts))
    if not series:
        return {}
    title = f"PoCL, CPU seconds: tinyedge as parts of tinygrad {result['peer']}"
    names = [f"{entry['model']} {entry['size']}" for entry in result["models"]]
    return {"opencl.svg": plot.bars(title, names, series)}


def text(result: Result) -> str:
    """For a terminal."""
    return report.as_text(tables(result), _notes(result))


def markdown(result: Result) -> str:
    """For the README."""
    return report.as_markdown(tables(result), _notes(result))


def _notes(result: Result) -> list[str]:
    notes = []
    for entry in result["models"]:
        for name, facts in entry["sides"].items():
            if "error" in facts:
                notes.append(f"{entry['model']}, {name}: {' '.join(facts['error'].split())[:300]}")
            elif not facts["right"]:
                notes.append(f"{entry['model']}, {name}: wrong, off by {facts['difference']:.1e}")
    notes += [
        f"{name}: left out unless it is named, as tinygrad had not compiled it after ten minutes"
        for name in result.get("left_out", ())
    ]
    repaired = [
        entry["model"]
        for entry in result["models"]
        if entry["sides"].get(PEER.name, {}).get("repaired")
    ]
    if repaired:
        notes.append(
            f"tinygrad cannot read {', '.join(repaired)} as it is: it was given without the "
            "constants of no elements that stand for inputs left out."
        )
    return [
        *notes,
        f"CPU seconds are of a whole process on PoCL, {result['processors']} busy processors; "
        "medians of blocks of runs, all sides in turn. A run copies its inputs in and its outputs "
        "out. tinygrad: ONNX reader, TinyJit with what is constant left out; `of its replay`: "
        "beside its launches alone, without its copies. `by Python`: the Python replay instead of "
        "the C runtime; `processor`: that profile in place of `buffers`. Buffers: as planned, and "
        "as tinygrad counts them. To the first output: "
        "tinyedge's is of its C program, without the export beside it, tinygrad's has its reading "
        "and compiling of the model. `off by`: from onnxruntime on the CPU, of the largest value.",
    ]
