"""Whole models as Markdown tables: ratios to each other side, and two threads beside one."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.report import MISSING, Table
from tests.study import fits
from tests.study.figures import (
    Result,
    clock_name,
    digits,
    failures,
    median,
    name_of,
    off,
    ratio,
    time,
)
from tests.study.plot import Series, svg

OURS = ("tinyedge", "avx512")


def tables(result: Result) -> tuple[list[Table], list[str]]:
    made = [_of_threads(result, threads) for threads in result["threads"]]
    notes = []
    if result["target"] != "cpu":
        notes.append(
            f"tinyedge for {result['target']}, on {result['device']}, operands and results there. "
            "Device ms: between time stamps around each launch. Of the others only "
            "tinygrad runs there."
        )
    notes.append(
        "CPU ms: of all threads; ms: by the clock, which other work on the machine lengthens. "
        "Medians of blocks of runs in turn. Ratios are tinyedge over the other; avx512: tinyedge "
        "by that profile. GFLOP: of convolutions and products alone. FMA limit: "
        f"{digits(result['fma'] / 1e9)} GFLOP/s on one thread. Off by: of the greatest output, "
        "from onnxruntime."
    )
    if "together" in result:
        made.append(_together(result))
        notes.append(_of_together(result))
    return made, [*notes, *failures([*result["rows"], *_unanswered(result)])]


def _unanswered(result: Result) -> list[Result]:
    """What gave no answer by turns; what is off there is off in the other tables."""
    return [
        {**row, "sides": {name: facts for name, facts in row["sides"].items() if "error" in facts}}
        for row in result.get("together", ())
    ]


def _of_threads(result: Result, threads: int) -> Table:
    """A row for each model, and the geometric means of the ratios."""
    rows = [row for row in result["rows"] if row["threads"] == threads]
    clock = clock_name(result)
    wide_clock = "cpu" if threads == 1 else "wall"
    others = [side for side in result["sides"] if side not in OURS]
    wide = "avx512" in result["sides"]
    headings = [
        "model",
        f"{clock} ms",
        *(f"of {side}" for side in others),
        "ms",
        "of onnxruntime",
        *((f"avx512, {'CPU ms' if threads == 1 else 'ms'}", "of onnxruntime") if wide else ()),
        "GFLOP",
        f"GFLOP a {clock} second",
        "of the FMA limit",
        "off by",
    ]
    compared = [
        *(("tinyedge", side, "cpu") for side in others),
        ("tinyedge", "onnxruntime", "wall"),
        *([("avx512", "onnxruntime", wide_clock)] if wide else []),
    ]
    shown = [_model(row, others, compared, wide, result["fma"]) for row in rows]
    means = iter(_mean(rows, *pair) for pair in compared)
    shown.append(
        [
            *("geometric mean", ""),
            *(next(means) for _ in others),
            *("", next(means)),
            *(("", next(means)) if wide else ()),
            *("", "", "", ""),
        ]
    )
    return f"{threads} thread" + ("s" if threads > 1 else ""), headings, shown


def _model(
    row: Result,
    others: Sequence[str],
    compared: Sequence[tuple[str, str, str]],
    wide: bool,
    limit: float,
) -> list[str]:
    sides = row["sides"]
    ratios = iter(
        ratio(median(sides, a, clock), median(sides, b, clock)) for a, b, clock in compared
    )
    spent = median(sides, "tinyedge", "cpu")
    rate = None if spent is None else row["flops"] / spent
    return [
        name_of(row),
        _shown(spent, 1e3),
        *(next(ratios) for _ in others),
        *(_shown(median(sides, "tinyedge", "wall"), 1e3), next(ratios)),
        *((_shown(median(sides, "avx512", compared[-1][2]), 1e3), next(ratios)) if wide else ()),
        digits(row["flops"] / 1e9),
        _shown(rate, 1e-9),
        ratio(rate, limit),
        off(sides.get("tinyedge", {}).get("off")),
    ]


def _shown(value: float | None, scale: float) -> str:
    return MISSING if value is None else digits(value * scale)


def _mean(rows: Sequence[Result], one: str, other: str, clock: str) -> str:
    """The geometric mean of what one side takes over the other, where both have an answer."""
    pairs = [[median(row["sides"], side, clock) for side in (one, other)] for row in rows]
    ratios = [ours / theirs for ours, theirs in pairs if ours and theirs]
    return f"{fits.geometric_mean(ratios):.2f}x" if ratios else MISSING


def _together(result: Result) -> Table:
    """More threads beside few: what the clock says, and what it could say at least."""
    few, more = result["threads"][:2]
    rows = []
    for row in result["together"]:
        sides = row["sides"]
        clocks = {
            (side, threads): median(sides, f"{side}, {threads}", "wall")
            for side in ("tinyedge", "onnxruntime")
            for threads in (few, more)
        }
        one = clocks["tinyedge", few]
        woken = row["launches"] * result["wake"]
        rows.append(
            [
                name_of(row),
                *(_shown(clocks["tinyedge", threads], 1e3) for threads in (few, more)),
                *(
                    ratio(clocks[side, more], clocks[side, few])
                    for side in ("tinyedge", "onnxruntime")
                ),
                str(row["launches"]),
                ratio(None if one is None else one * few / more + woken, one),
            ]
        )
    headings = [
        "model",
        *(f"{n} thread{'s' if n > 1 else ''}, ms" for n in (few, more)),
        *("ratio", "of onnxruntime with itself", "launches", "at least"),
    ]
    return f"{more} threads beside {few}, by turns: ms by the clock", headings, rows


def _of_together(result: Result) -> str:
    few, more = result["threads"][:2]
    return (
        f"At least: {few} / {more} of the time, and for each launch {time(result['wake'])}, by "
        "which a launch of 2.1 million operations on two threads takes longer than half of its "
        "time on one."
    )


def roofline(result: Result) -> str:
    """Each model's rate against its work, on the first number of threads."""
    series = []
    for side in result["sides"]:
        rows = [row for row in result["rows"] if row["threads"] == result["threads"][0]]
        rows = [row for row in rows if median(row["sides"], side) is not None and row["flops"]]
        points = [
            (row["flops"] / 1e9, row["flops"] / (median(row["sides"], side) or 1) / 1e9)
            for row in rows
        ]
        labels = [row["kind"] for row in rows]
        if points:
            series.append(Series(side, points, joined=False, labels=labels))
    return svg("Models", "GFLOP a run", f"GFLOP a {clock_name(result)} second", series)
