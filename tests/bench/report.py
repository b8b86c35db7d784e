"""The benchmark's results as text: for a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.study import plot

Result = dict[str, Any]
Table = tuple[str, list[str], list[list[str]]]

MISSING = "-"
PEER_BAR, FLOOR_BAR = 0.12, 1.15  # parts of onnxruntime-web's time, of the floor


def tables(report: Result) -> list[Table]:
    """(title, headings, rows) of everything measured. Ratios are tinyedge over the peer."""
    return [
        _summary(report),
        _others(report),
        _without_gpu(report),
        _floor(report),
        _before(report),
        _time("CPU seconds a run", report, "run"),
        _time("CPU seconds to the first output", report, "first"),
        _work(report),
        _bytes(report),
        _rates(report),
        _exports(report),
    ]


def _summary(report: Result) -> Table:
    """The table to show alone: in each cell tinyedge / peer."""

    sides = ("ours", "peer")
    rows = [
        [
            *_times(result, sides),
            _pair(result, sides, "counters_of_a_run", "launches"),
            _pair(result, sides, "counters_to_first", "pipelines"),
            _pair(result, sides, "peak_gpu_bytes", scale=1e-6),
            _pair(result, sides, "fetched", "gzipped", scale=1e-3),
        ]
        for result in report["models"]
    ]
    headings = [*TIMES, "launches", "pipelines", "GPU buffers, MB", FETCHED]
    return "tinyedge / onnxruntime-web", headings, rows


TIMES = ("model", "CPU s a run", "ratio", "CPU s to the first output", "ratio")
FETCHED = "fetched beside weights, KB gzipped"


def _times(result: Result, sides: Sequence[str]) -> list[str]:
    """A row's beginning, under TIMES: of each time those of two sides, and their ratio."""
    row = [_name(result)]
    for what in ("run", "first"):
        medians = [value(result, side, what, "cpu", "median") for side in sides]
        row += [_pair(result, sides, what, "cpu", "median"), ratio(*medians)]
    return row


def _pair(result: Result, sides: Sequence[str], *path: str, scale: float = 0) -> str:
    """A figure of two sides: "0.1 / 0.2"."""
    found = (value(result, side, *path) for side in sides)
    return " / ".join(MISSING if n is None else number(n * scale if scale else n) for n in found)


OTHERS = {"wasm": "onnxruntime-web, WASM", "litert": "LiteRT.js", "tinygrad": "tinygrad's export"}


def _others(report: Result) -> Table:
    """Sides beside the peer: CPU seconds, and tinyedge's over theirs."""
    refused = {side for (side, _), models in _failures(report).items() if models == EVERY}
    asked = [side for side in OTHERS if any(side in result for result in report["models"])]
    asked = [side for side in asked if side not in refused]
    sides = [side for side in asked if any(value(r, side, "run") for r in report["models"])]
    rows = []
    for result in report["models"]:
        row = [_name(result)]
        for what in ("run", "first"):
            ours = value(result, "ours", what, "cpu", "median")
            for side in sides:
                theirs = value(result, side, what, "cpu", "median")
                row += [MISSING if theirs is None else number(theirs), ratio(ours, theirs)]
        row += [_verdict(result, side) for side in asked]
        rows.append(row)
    headings = [
        "model",
        *(part for side in sides for part in (f"{OTHERS[side]}: CPU s a run", "ratio")),
        *(part for side in sides for part in (f"{OTHERS[side]}: to the first output", "ratio")),
        *(f"{OTHERS[side]} is" for side in asked),
    ]
    return "Other runtimes in the same Chromium", headings, rows if asked else []


def _without_gpu(report: Result) -> Table:
    """tinyedge in WebAssembly beside the peer in WebAssembly."""
    sides = ("fallback", "wasm")
    rows = [
        [
            *_times(result, sides),
            _pair(result, sides, "fetched", "gzipped", scale=1e-3),
            _verdict(result, "fallback"),
        ]
        for result in report["models"]
        if value(result, "fallback", "run")
    ]
    headings = [*TIMES, FETCHED, "tinyedge is"]
    return "Without a GPU: tinyedge / onnxruntime-web, both in WebAssembly", headings, rows


def _floor(report: Result) -> Table:
    """CPU seconds of a run beside what the best tile by hand takes for the model's contractions."""
    rows = []
    for result in report["models"]:
        pace = value(result, "by_hand", "median")
        ours = value(result, "ours", "run", "cpu", "median")
        floor = result["flops"] / 1e9 / pace if pace else None
        peer = value(result, "peer", "run", "cpu", "median")
        row = [_name(result), number(result["flops"] / 1e9)]
        row += [MISSING if seconds is None else number(seconds) for seconds in (floor, ours)]
        rows.append([*row, ratio(ours, floor), ratio(ours, peer), held(ours, floor, peer)])
    headings = [
        *("model", "GFLOP", "floor, CPU s", "tinyedge, CPU s a run", "of the floor"),
        *("of onnxruntime-web", "within"),
    ]
    title = f"At most {FLOOR_BAR} of the floor, or {PEER_BAR} of onnxruntime-web"
    return title, headings, rows if any(row[2] != MISSING for row in rows) else []


def held(ours: float | None, floor: float | None, peer: float | None) -> str:
    """Which of the two bars a time is within."""
    if ours is None or (floor is None and peer is None):
        return MISSING
    bars = {"the floor": (floor, FLOOR_BAR), "the peer": (peer, PEER_BAR)}
    kept = [name for name, (of, bar) in bars.items() if of is not None and ours <= bar * of]
    return " and ".join(kept) or "neither"


def _before(report: Result) -> Table:
    """tinyedge of now beside an older one."""
    sides = ("ours", "before")
    rows = []
    for result in report["models"]:
        if "before" not in result:
            continue
        exports = [value(result, name, "cpu") for name in ("export", "export_before")]
        shown = " / ".join(MISSING if n is None else number(n) for n in exports)
        launches = _pair(result, sides, "counters_of_a_run", "launches")
        rows.append([*_times(result, sides), launches, shown, ratio(*exports)])
    commit = report.get("baseline", "")
    return (
        f"tinyedge of now / as of {commit}, in the same Chromium",
        [*TIMES, "launches", "export, CPU s", "ratio"],
        rows,
    )


def number(value: float) -> str:
    """Two or three significant digits; whole numbers whole."""
    if isinstance(value, int):
        return str(value)
    if 0 < value < 0.001:
        return f"{value:.1e}"
    digits = 3 if value < 0.1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f}"


def value(result: Result, *path: str) -> Any:
    for key in path:
        if not isinstance(result, dict) or key not in result:
            return None
        result = result[key]
    return result


def _spread(sample: Result | None) -> str:
    if not sample:
        return MISSING
    text = number(sample["median"])
    if sample["samples"] > 1:
        text += f" ({number(sample['least'])}-{number(sample['greatest'])})"
    return text


def ratio(ours: float | None, peer: float | None) -> str:
    return f"{ours / peer:.2f}x" if ours is not None and peer else MISSING


def _name(result: Result) -> str:
    return f"{result['model']} {result['size']}"


def _time(title: str, report: Result, what: str) -> Table:
    rows = []
    for result in report["models"]:
        ours, peer = value(result, "ours", what), value(result, "peer", what)
        ratios = [
            ratio(value(ours or {}, kind, "median"), value(peer or {}, kind, "median"))
            for kind in ("cpu", "wall")
        ]
        rows.append(
            [
                _name(result),
                _spread(value(ours or {}, "cpu")),
                _spread(value(peer or {}, "cpu")),
                *ratios,
                _verdict(result, "ours"),
                _verdict(result, "peer"),
            ]
        )
    return title, ["model", "tinyedge", "peer", "ratio", "of wall", "tinyedge is", "peer is"], rows


def _short(error: str, length: int) -> str:
    """For one line of Markdown, maybe as code."""
    return " ".join(error.replace("`", " ").split())[:length]


def _verdict(result: Result, side: str) -> str:
    answer = result.get(side)
    if answer is None:
        return MISSING
    if "error" in answer:
        return "not yet" if side == "ours" else "failing"
    return "right" if answer["right"] else f"wrong ({answer['difference']:.1e})"


def _work(report: Result) -> Table:
    rows = []
    for result in report["models"]:
        row = [_name(result), str(result["contractions"])]
        for side in ("ours", "peer"):
            run = value(result, side, "counters_of_a_run")
            load = value(result, side, "counters_to_first")
            if run is None or load is None:
                row += [MISSING] * 4
                continue
            made = run["bindGroups"] + run["buffers"] + run["pipelines"] + run["textures"]
            row += [
                str(run["launches"]),
                str(load["pipelines"]),
                f"{run['passes']} / {run['submits']}",
                str(made),
            ]
        rows.append(row)
    names = ["launches", "pipelines", "passes / submits", "objects made a run"]
    headings = ["model", "contractions", *names, *(f"peer: {name}" for name in names)]
    return "Work on the GPU", headings, rows


def _bytes(report: Result) -> Table:
    rows = []
    for result in report["models"]:
        row = [_name(result)]
        for side in ("ours", "peer"):
            peak = value(result, side, "peak_gpu_bytes")
            fetched = value(result, side, "fetched", "gzipped")
            row += [
                MISSING if peak is None else number(peak / 1e6),
                MISSING if fetched is None else number(fetched / 1e3),
            ]
        memory = result.get("memory") or {}
        live = memory.get("live_bytes")
        arena = memory.get("arena_bytes")
        row.append(f"{arena / live:.2f}x" if arena and live else MISSING)
        files = value(result, "ours", "fetched", "files") or {}
        plan = sum(file["gzipped"] for name, file in files.items() if name != "tinyedge.js")
        row += [
            number(plan / 1e3) if files else MISSING,
            number(files["tinyedge.js"]["gzipped"] / 1e3) if "tinyedge.js" in files else MISSING,
        ]
        rows.append(row)
    headings = [
        "model",
        "GPU buffers, MB",
        "fetched beside weights, KB gzipped",
        "peer: GPU buffers, MB",
        "peer: fetched, KB gzipped",
        "arena / live set",
        "manifest and kernels, KB gzipped",
        "tinyedge.js, KB gzipped",
    ]
    return "Bytes", headings, rows


def _rates(report: Result) -> Table:
    rows = []
    for size, entry in (report.get("by_hand") or {}).items():
        rows.append([f"matmul {size}, by hand ({entry['best']})", MISSING, _spread(entry), MISSING])
    for size, entry in (report.get("by_tinyedge") or {}).items():
        name = f"matmul {size}, tinyedge"
        if "error" in entry:
            rows.append([name, MISSING, "not yet", MISSING])
        else:
            hand = value(report, "by_hand", size, "median")
            rows.append([name, MISSING, _spread(entry), ratio(entry["median"], hand)])
    for result in report["models"]:
        ours = result.get("ours") or {}
        contracting = ours.get("contraction_gflop_per_gpu_cpu_second")
        whole = ours.get("gflop_per_gpu_cpu_second")
        rows.append(
            [
                _name(result),
                number(result["flops"] / 1e9),
                number(contracting) + f" (whole: {number(whole)})" if contracting else MISSING,
                ratio(contracting, value(result, "by_hand", "median")),
            ]
        )
    headings = [
        "contractions",
        "GFLOP",
        "GFLOP per CPU s of the GPU process",
        "of the best by hand",
    ]
    return "Contractions", headings, rows


def _exports(report: Result) -> Table:
    rows = []
    for result in report["models"]:
        entry = result.get("export") or {}
        if "cpu" in entry:
            golden = "yes" if entry["golden"] else "no"
            rows.append([_name(result), number(entry["cpu"]), number(entry["wall"]), golden, ""])
        elif entry:
            rows.append([_name(result), MISSING, MISSING, MISSING, _short(entry["error"], 110)])
    return "Export", ["model", "CPU s", "wall s", "golden", "not yet"], rows


def plots(report: Result) -> dict[str, str]:
    """SVG by file name: tinyedge's CPU seconds as parts of each other side's."""
    models = report["models"]
    compared = {
        "onnxruntime-web": ("ours", "peer"),
        **{name: ("ours", side) for side, name in OTHERS.items()},
        f"tinyedge of {report.get('baseline')}": ("ours", "before"),
        "both in WASM": ("fallback", "wasm"),
    }
    found = {}
    for what, words in (("run", "a run"), ("first", "to the first output")):
        series = []
        for name, sides in compared.items():
            pairs = [[value(m, side, what, "cpu", "median") for side in sides] for m in models]
            parts = [ours / peer if ours and peer else None for ours, peer in pairs]
            if any(parts):
                series.append(plot.Bars(name, parts))
        if series:
            title = f"Chromium, CPU seconds {words}: tinyedge as parts of others"
            found[f"chromium-{what}.svg"] = plot.bars(title, [_name(m) for m in models], series)
    return found


def write_plots(plots: Mapping[str, str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, svg in plots.items():
        (folder / name).write_text(svg, encoding="utf-8")


def text(report: Result) -> str:
    """For a terminal."""
    return as_text(tables(report), _notes(report))


def markdown(report: Result) -> str:
    """Everything, in Markdown."""
    return as_markdown(tables(report), _notes(report, "`"))


def summary(report: Result) -> str:
    """For the README: without the tables that say more of what the first one does."""
    shown = [
        *(_summary(report), _others(report), _without_gpu(report)),
        *(_rates(report), _exports(report)),
    ]
    return as_markdown(shown, _notes(report, "`"))


def study(report: Result) -> str:
    """For the study: the bars that the summary does not show."""
    return as_markdown([_floor(report), _before(report)], [_machine(report)])


def others(report: Result) -> str:
    """For the study: models that the README's table does not have, with its columns and bars."""
    shown = [_floor(report), _summary(report), _others(report), _without_gpu(report)]
    return as_markdown(shown, _notes(report, "`"))


def _machine(report: Result) -> str:
    facts = report.get("machine")
    if not facts:
        return ""
    return (
        f"{facts['processor']}, load average {facts['load']:.1f} at the end, adapter "
        f"{report['adapter']}, tinyedge as of {facts['commit']}."
    )


def as_text(tables: list[Table], notes: list[str]) -> str:
    """Tables of aligned columns; those without rows are left out."""
    parts = []
    for title, headings, rows in tables:
        if not rows:
            continue
        columns = list(zip(headings, *rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        lines = [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in [headings, *rows]
        ]
        parts.append("\n".join([title, *lines]))
    return "\n\n".join([*parts, *notes])


def as_markdown(tables: list[Table], notes: list[str]) -> str:
    """The same in Markdown."""
    parts = []
    for title, headings, rows in tables:
        if not rows:
            continue
        lines = [
            f"**{title}**",
            "",
            "| " + " | ".join(headings) + " |",
            "|---" * len(headings) + "|",
            *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows),
        ]
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, *notes]) + "\n"


EVERY = "every model"


def _failures(report: Result) -> dict[tuple[str, str], str]:
    """By side and what it said, which models it was said of."""
    said: dict[tuple[str, str], list[str]] = {}
    for result in report["models"]:
        for side in ("ours", "peer", "fallback", *OTHERS, "before"):
            error = value(result, side, "error")
            if error:
                said.setdefault((side, _short(error, 160)), []).append(result["model"])
    many = len(report["models"])
    return {
        key: EVERY if len(models) == many > 1 else ", ".join(models) for key, models in said.items()
    }


def _notes(report: Result, mark: str = "") -> list[str]:
    """mark: before and behind what another program said, which may look like Markdown."""
    failures = [
        f"{models}, {side}: {mark}{error}{mark}"
        for (side, error), models in _failures(report).items()
    ]
    bare = value(report, "bare", "median")
    return [
        *failures,
        *([] if bare is None else [f"A page with one launch by hand: {number(bare)} CPU s."]),
        f"Peer: onnxruntime-web {report['peer']}, WebGPU provider, one thread. LiteRT.js "
        f"{report.get('litert') or 'not installed'}, its WebGPU. Chromium "
        f"{report['chromium']}, software adapter, {report['processors']} processors. CPU seconds "
        "are of all of Chromium's processes, medians with least and greatest; ratios are tinyedge "
        "over peer. By hand: the best of a few WGSL tiles, measured just before and after. "
        "`right`: every output within 1e-4 of onnxruntime on the CPU. Floor: what that tile takes "
        "for the model's contractions.",
        *([_machine(report)] if "machine" in report else []),
    ]
