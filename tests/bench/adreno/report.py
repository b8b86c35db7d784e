"""The counts as text: for a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.bench.adreno.counts import Row, Side
from tests.bench.report import Table

MILLION = 1e-6
SUMS = ("instructions", "texture", "buffer", "products", "nops", "moves", "conversions", "spill")
HEADINGS = {"texture": "texture loads", "buffer": "buffer loads", "spill": "spilled"}


def models(pairs: Sequence[tuple[str, Sequence[Side]]]) -> Table:
    """A row for each side of each model: sums over all threads of all launches."""
    rows = []
    for model, sides in pairs:
        for side in sides:
            totals = side.totals
            first = sides[0].totals["instructions"]
            rows.append(
                [
                    model,
                    side.name,
                    str(side.launches),
                    *(f"{totals[kind] * MILLION:.1f}" for kind in SUMS),
                    f"{first / totals['instructions']:.2f}x",
                    str(totals["static instructions"]),
                    str(totals["static texture"]),
                ]
            )
    headings = ["model", "by", "launches", *(HEADINGS.get(kind, kind) for kind in SUMS)]
    headings += ["ours, of its instructions", "static instructions", "static texture loads"]
    return "Millions, by all threads of a run; static: each launch's text once", headings, rows


def kernels(side: Side, top: int) -> Table:
    """A row for each kernel of a side, those that run the most instructions first."""
    rows = sorted(side.rows, key=lambda row: -row.all("instructions"))[:top]
    headings = ["M instructions", "kernel", "threads", "times", "a thread: instructions"]
    headings += ["products", "texture loads", "buffer loads", "nops", "static", "registers"]
    headings += ["waves", "waits", "spilled", "loops", "nodes"]
    return f"Kernels of {side.name}", headings, list(map(_row, rows))


def _row(row: Row) -> list[str]:
    listing = row.listing
    counts = ("instructions", "products", "texture", "buffer", "nops")
    return [
        f"{row.all('instructions') * MILLION:.2f}",
        row.kernel.name,
        str(row.threads),
        str(row.times),
        *(str(listing.of[kind]) for kind in counts),
        str(listing.static["instructions"]),
        str(listing.full),
        str(listing.waves),
        str(listing.waits),
        str(listing.of["spill"]),
        "counted" if listing.counted else "not counted",
        ", ".join(row.nodes[:2])[:40],
    ]


def notes(mesa: str, sides: Sequence[Side]) -> list[str]:
    found = [
        f"Mesa {mesa}'s compiler for an Adreno 630, offline: machine code, not times. A loop's "
        "body counts as often as it runs, and both sides of a branch. Registers are of four "
        "floats; waves: groups of threads that a processor holds at once, of 16; waits: "
        "instructions until loads have come, as the compiler estimates, each line once.",
    ]
    found += [
        f"{side.name}: the loops of {side.uncounted} kernels are not counted: they run once here."
        for side in sides
        if side.uncounted
    ]
    return found


def as_json(pairs: Sequence[tuple[str, Sequence[Side]]]) -> list[dict[str, Any]]:
    """All of it, by model and side."""
    return [
        {
            "model": model,
            "sides": {
                side.name: {
                    "launches": side.launches,
                    "totals": dict(side.totals),
                    "kernels": [
                        {
                            "kernel": row.kernel.name,
                            "threads": row.threads,
                            "times": row.times,
                            "nodes": list(row.nodes),
                            "counts": dict(row.listing.of),
                            "static": dict(row.listing.static),
                            "registers": row.listing.full,
                            "waits": row.listing.waits,
                            "counted": row.listing.counted,
                        }
                        for row in side.rows
                    ],
                }
                for side in sides
            },
        }
        for model, sides in pairs
    ]
