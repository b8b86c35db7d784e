"""What was measured as Markdown tables, and as plots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.bench.report import MISSING, Table, as_markdown
from tests.study import model_tables
from tests.study.figures import (
    Result,
    clock_name,
    digits,
    failures,
    median,
    milliseconds,
    off,
    ratio,
    spread,
    time,
)
from tests.study.operations import SIDES
from tests.study.plot import Series, svg

COMPARED = ("hand", "onnxruntime")  # what the study's ratios are to


def markdown(result: Result) -> str:
    result = _clocked(result)
    tables, notes = {
        "operations": _operations,
        "models": model_tables.tables,
        "scale": _scale,
        "fit": _fit,
    }[result["study"]](result)
    return as_markdown(tables, [*notes, _machine(result)])


def plots(result: Result) -> dict[str, str]:
    """SVG files by name."""
    result = _clocked(result)
    if result["study"] == "operations":
        made = {"roofline.svg": _roofline(result)}
        for kind in dict.fromkeys(fit["kind"] for fit in result["fits"]):
            made[f"{kind.replace(' ', '-')}.svg"] = _against_size(result, kind)
        return made
    if result["study"] == "fit":
        return {}
    if result["study"] == "scale":
        return {
            "scale-run.svg": _scaled(result, "run"),
            "scale-export.svg": _scaled(result, "export"),
        }
    return {"models.svg": model_tables.roofline(result)}


def _clocked(result: Result) -> Result:
    """With the seconds of the device in the place of the processor's, where its clock tells."""
    clock = result.get("clock", "cpu")
    if clock == "cpu":
        return result
    rows = []
    for row in result["rows"]:
        told = {
            side: {**facts, "cpu": facts[clock]} if clock in facts else facts
            for side, facts in row["sides"].items()
        }
        rows.append({**row, "sides": told})
    return {**result, "rows": rows}


def write_plots(result: Result, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in plots(result).items():
        (folder / name).write_text(text, encoding="utf-8")


def _machine(result: Result) -> str:
    facts = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return (
        f"{facts['processor']}, {facts['processors']} processors, vectors of {facts['vectors']} "
        f"floats, load average {digits(facts['load'])} at the end. tinyedge as of "
        f"{facts['commit']}. {versions}."
    )


def unanswered(result: Result) -> list[str]:
    """The rows in which tinyedge itself gave no answer: what others lack is theirs."""
    found = result.get("rows", ())
    rows = [row for row in found if "error" in row.get("sides", {}).get("tinyedge", {})]
    return list(dict.fromkeys(f"{row['kind']} {row['size']}".strip() for row in rows))


# --- operations -----------------------------------------------------------------------------------


def bandwidth(row: Result, side: str) -> float | None:
    """Bytes a second that a side moves at least."""
    found = median(row["sides"], side)
    return None if found is None else row["bytes"] / found


def copies(rows: Sequence[Result]) -> list[tuple[int, float]]:
    """Bytes moved and bytes a second of the copies by hand: what memory of each size gives."""
    return [
        (row["bytes"], rate)
        for row in rows
        if row["kind"] == "copy" and (rate := bandwidth(row, "hand")) is not None
    ]


def copy_rate(rows: Sequence[Result], bytes: int) -> float | None:
    """Bytes a second of the copy whose traffic is nearest."""
    measured = copies(rows)
    if not measured:
        return None
    return min(measured, key=lambda pair: max(pair[0], bytes) / max(1, min(pair[0], bytes)))[1]


def _operations(result: Result) -> tuple[list[Table], list[str]]:
    rows, names, clock = result["rows"], result["sides"], clock_name(result)
    memory, arithmetic = (
        [row for row in rows if row["bound"] == bound] for bound in ("memory", "arithmetic")
    )
    tables = [
        (
            f"Bound by memory: {clock} ms a run",
            _headings(names, "GB/s", "of copy"),
            [_moved(names, row, rows) for row in memory],
        ),
        (
            f"Bound by arithmetic: {clock} ms a run",
            _headings(names, "GFLOP/s", "of the FMA limit"),
            [_computed(names, row, result["fma"]) for row in arithmetic],
        ),
        _fits(result["fits"]),
    ]
    if "overhead" in result:
        tables.append(_overhead(result["overhead"]))
    limit = f"{result['fma'] / 1e9:.0f} GFLOP/s"
    if result["target"] == "cpu":
        note = (
            f"FMA limit: {limit} on one thread, of multiplies and adds in registers. tinyedge: the "
            "C runtime. CPU time on one thread, medians of blocks of runs in turn after warm-ups, "
            "(least-greatest)."
        )
    else:
        note = (
            f"For {result['target']}, on {result['device']}. FMA limit: {limit} of {clock} time, "
            f"of multiplies and adds in registers. {clock[0].upper() + clock[1:]} time: "
            + (
                "of this process with the driver's threads, over runs that follow each other"
                if clock == "CPU"
                else "between time stamps around each launch, without what lies between launches"
            )
            + "; operands and results stay on the device. Medians of blocks of runs in turn after "
            "warm-ups, (least-greatest)."
        )
    notes = [note, *_calls(result)]
    return [table for table in tables if table[2]], [*notes, *failures(rows)]


def _headings(names: Sequence[str], rate: str, limit: str) -> list[str]:
    others = [f"{word}of {other}" for word, _, other in _compared(names)]
    return ["operation", *names, *others, rate, f"{limit}", f"by hand, {limit}"]


def _compared(names: Sequence[str]) -> list[tuple[str, str, str]]:
    """Whose time over whose is shown, and what its heading begins with."""
    words = (("", "tinyedge"), ("avx512, ", "avx512"))
    pairs = [(word, side, other) for other in COMPARED for word, side in words]
    return [pair for pair in pairs if {*pair[1:]} <= {*names}]


def _common(names: Sequence[str], row: Result) -> list[str]:
    sides = row["sides"]
    ours = sides.get("tinyedge", {})
    return [
        f"{row['kind']} {row['size']}",
        *(
            spread(ours) if side == "tinyedge" and "cpu" in ours else milliseconds(sides, side)
            for side in names
        ),
        *(ratio(median(sides, one), median(sides, other)) for _, one, other in _compared(names)),
    ]


def _moved(names: Sequence[str], row: Result, rows: Sequence[Result]) -> list[str]:
    limit = copy_rate(rows, row["bytes"])
    rates = [bandwidth(row, side) for side in ("tinyedge", "hand")]
    shown = MISSING if rates[0] is None else digits(rates[0] / 1e9)
    return [*_common(names, row), shown, *(ratio(rate, limit) for rate in rates)]


def _computed(names: Sequence[str], row: Result, limit: float) -> list[str]:
    found = [median(row["sides"], side) for side in ("tinyedge", "hand")]
    rates = [None if seconds is None else row["flops"] / seconds for seconds in found]
    shown = MISSING if rates[0] is None else digits(rates[0] / 1e9)
    return [*_common(names, row), shown, *(ratio(rate, limit) for rate in rates)]


def _fits(found: Sequence[Result]) -> Table:
    headings = ["operation", "side", "a", "b", "as long as tinyedge at n ="]
    rows = [
        [
            fit["kind"],
            fit["side"],
            time(fit["a"]),
            f"{time(fit['b'] * 1000)} for 1000",
            MISSING if fit["equal"] is None else digits(fit["equal"]),
        ]
        for fit in found
    ]
    return "t = a + bn, from 1K to 100K numbers", headings, rows


def _overhead(found: Result) -> Table:
    rows = [
        ["graph: import and compile, CPU", time(found["export"]["a"])],
        ["graph: each node of a chain, CPU", time(found["export"]["b"])],
        *([name, time(facts["median"])] for name, facts in found["steps"].items()),
        ["run: without launches", time(found["launch"]["a"])],
        ["run: each launch, with its product of 2x16 by 16x16", time(found["launch"]["b"])],
    ]
    if "wake" in found:
        woken = time(max(0.0, found["wake"]))
        rows.append(["run: a second thread woken and waited for, a launch", woken])
    return "Where the time of a small run goes", ["step", "time"], rows


def _calls(result: Result) -> list[str]:
    """What a call costs, beside what others have found of tinygrad."""
    found = {(fit["kind"], fit["side"]): fit["a"] for fit in result["fits"]}
    if "overhead" not in result or ("multiply-add", "tinyedge") not in found:
        return []
    ours = time(found["multiply-add", "tinyedge"])
    theirs = found.get(("multiply-add", "tinygrad"))
    beside = "" if theirs is None else f", by tinygrad's JIT {time(theirs)}"
    return [
        f"A call of a*b+c without its numbers, as `a` of its line says: {ours}{beside}. "
        "Others found 37 us of Python in each call of tinygrad's JIT on a GPU."
    ]


def _roofline(result: Result) -> str:
    """GFLOP/s over FLOPs a byte, below what memory and the FMA unit give."""
    rows = [row for row in result["rows"] if row["flops"]]
    limit = result["fma"]
    reach = [row["flops"] / row["bytes"] for row in rows]
    roofs = []
    for name, rates in _roofs(result["rows"]).items():
        edge = [min(reach) / 1.5, limit / rates, max(reach) * 1.5]
        points = [(x, min(limit, x * rates) / 1e9) for x in edge]
        roofs.append(Series(f"roof, {name}", points))
    marks = []
    for side in ("hand", "tinyedge", "onnxruntime"):
        here = [row for row in rows if median(row["sides"], side) is not None]
        points = [
            (row["flops"] / row["bytes"], row["flops"] / (median(row["sides"], side) or 1) / 1e9)
            for row in here
        ]
        labels = [f"{row['kind']} {row['size']}" for row in here]
        marks.append(Series(side, points, joined=False, labels=labels))
    return svg("Roofline", "FLOP a byte", "GFLOP/s", [*roofs, *marks])


def _roofs(rows: Sequence[Result]) -> dict[str, float]:
    """The fastest copy, and that of the most bytes."""
    measured = copies(rows)
    if not measured:
        return {}
    return {"a cache": max(rate for _, rate in measured), "memory": max(measured)[1]}


def _against_size(result: Result, kind: str) -> str:
    series = []
    for side in SIDES:
        points = [
            (row["bytes"], seconds * 1e6)
            for row in result["rows"]
            if row["kind"] == kind and (seconds := median(row["sides"], side)) is not None
        ]
        if points:
            series.append(Series(side, points))
    return svg(kind, "bytes moved at least", f"{clock_name(result)} us a run", series)


# --- scale ----------------------------------------------------------------------------------------


def _scale(result: Result) -> tuple[list[Table], list[str]]:
    rows = [
        [
            row["axis"],
            str(row["n"]),
            str(row["nodes"]),
            digits(row["flops"] / 1e9),
            time(row["export"]),
            time(row["run"]),
            ratio(row["two_threads"], row["clock"]),
            digits(row["flops"] / row["run"] / 1e9),
            str(row["launches"]),
            off(row["off"]),
        ]
        for row in result["rows"]
    ]
    headings = [
        "axis",
        "n",
        "nodes",
        "GFLOP",
        "export, CPU",
        "run, CPU",
        "two threads of one, by the clock",
        "GFLOP/s",
        "launches",
        "off by",
    ]
    slopes = [
        [fit["axis"], fit["of"], f"{fit['power']:.2f}", fit["line"]] for fit in result["slopes"]
    ]
    return [
        ("Growth", headings, rows),
        ("Slopes", ["axis", "what", "grows as n to the power", "line"], slopes),
    ], [
        "tinyedge alone, the C runtime on one thread, and on two beside it. Export: without a "
        "golden case, and without the C compiler."
    ]


def _fit(result: Result) -> tuple[list[Table], list[str]]:
    """Tables of shapes, and of constants: those in the source beside those that fit best."""
    single = result["constants"]
    tables = [*(_fit_tiles(result) if "tiles" in result else [])]
    for name, found in single.items():
        rows = [
            [
                *(row["shape"], str(row["tried"]), time(row["best_seconds"])),
                ", ".join(f"{value:g}" for value in row["values"]),
                *(_loss(row, word) for word in ("now", "fitted")),
            ]
            for row in found["rows"]
        ]
        tables += [(f"{name}: shapes that it decides", _SHAPES, rows), _by_value(name, found)]
    fitted = {name: result[name] for name in ("tiles", "winograd") if name in result} | single
    constants = [
        [name, f"{each['now'][name]:g}", f"{each['fitted'][name]:g}"]
        for each in fitted.values()
        for name in each["now"]
    ]
    losses = [
        [of, *(f"{100 * each['loss'][word]:.1f} %" for word in ("now", "fitted"))]
        for of, each in fitted.items()
    ]
    if "agreement" in result:
        told = (f"{result['agreement'][word]:.2f}" for word in ("now", "fitted"))
        losses.append(["rank agreement of cost and time (Spearman)", *told])
    same = all(each["now"] == each["fitted"] for each in fitted.values())
    verdict = (
        "The constants in the source are as good as any."
        if same
        else "Write the fitted constants into tinyedge/core/compiler, with [changes kernels]."
    )
    thread = ", one thread" if result["target"] == "cpu" else ""
    notes = []
    for name, each in single.items():
        told = f"{name} decides kernels of {len(each['rows'])} of {each['shapes']} shapes."
        share = f" Seconds: a run with a part in {each['runs']} of its compiling."
        notes.append(told + (share if each["runs"] else ""))
    return [
        *tables,
        ("Constants", ["constant", "now", "fitted"], constants),
        ("Mean over the shapes", ["slower than the best", "now", "fitted"], losses),
    ], [f"{result['target']}, profile {result['profile']}{thread}. {_KNOWN}", *notes, verdict]


def _by_value(name: str, found: Result) -> Table:
    """What each value of a constant leads to; with what compiling takes, where that counts."""
    headings = [name, "slower than the best, mean"]
    rows = [[f"{each['value']:g}", f"{100 * each['loss']:.1f} %"] for each in found["values"]]
    if found["runs"]:
        headings += ["kernels", "compiling all"]
        for row, each in zip(rows, found["values"], strict=True):
            row += [str(each["kernels"]), time(each["compiling"])]
    return f"{name}: values", headings, rows


def _fit_tiles(result: Result) -> list[Table]:
    """Of tiles, and of Winograd's method."""
    rows = [
        [
            row["shape"],
            str(row["tried"]),
            row["best"],
            time(row["best_seconds"]),
            *(text for word in ("now", "fitted") for text in (row[word], _loss(row, word))),
        ]
        for row in result["shapes"]
    ]
    alternatives = [
        [
            row["shape"],
            *(time(row["seconds"][n]) if n in row["seconds"] else MISSING for n in _ALTERNATIVES),
            *(text for word in ("now", "fitted") for text in (row[word], _loss(row, word))),
        ]
        for row in result["transforms"]
    ]
    chosen = ["now", "slower than the best", "fitted", "slower than the best"]
    return [
        ("Tiles", ["shape", "kernels tried", "best tile", "best", *chosen], rows),
        ("Winograd's method", ["shape", *_ALTERNATIVES, *chosen], alternatives),
    ]


_KNOWN = "In parentheses: by how much rounds differ, of which the least counts."


_ALTERNATIVES = ("plain", "F4", "F2")
_SHAPES = [
    *("shape", "kernels tried", "best", "by a value of"),
    *("slower than the best, now", "fitted"),
]


def _loss(row: Result, word: str) -> str:
    """How much slower than the best, and how far that may be off."""
    return f"{100 * row[word + '_loss']:.0f} % (+-{100 * row[word + '_unknown']:.0f})"


def _scaled(result: Result, what: str) -> str:
    over = "flops" if what == "run" else "nodes"
    series = []
    for axis in dict.fromkeys(row["axis"] for row in result["rows"]):
        points = [(row[over], row[what] * 1e3) for row in result["rows"] if row["axis"] == axis]
        series.append(Series(axis, points))
    return svg(f"{what} against {over}", over, "CPU ms", series)
