"""What an export costs, by stage, beside an older tinyedge: `python -m tests.bench.exports`.

    python -m tests.bench.exports                         # every model, for webgpu
    python -m tests.bench.exports resnet18 --target cpu     # or qcom, cuda: by NVRTC
    python -m tests.bench.exports --baseline COMMIT --json FILE

CPU seconds of a process that exports once, with nothing cached on the disk but Python's bytecode,
as installing a package makes it; a first export of each side, which does, is not counted. Both
sides take turns; each round's stages are those of one process, and of the rounds the one that took
least counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench import baseline, cases
from tests.bench.compare import ROOT, environment
from tests.bench.report import MISSING, Result, Table, as_markdown, number, ratio, value
from tests.study import sides

CHILD = Path(__file__).with_name("export_once.py")
TARGETS = ("webgpu", "cpu", "qcom", "cuda")
TOTAL_BAR, GOLDEN_BAR = 1.5, 1.0  # parts of the older time, of the compile


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.exports",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cases.add_models(parser)
    parser.add_argument("--target", choices=TARGETS, default="webgpu", help="default: webgpu")
    parser.add_argument(
        "--baseline",
        metavar="COMMIT",
        default=baseline.COMMIT,
        help=f"whose tinyedge is beside; default: {baseline.COMMIT}, the last before tiles of "
        "registers and Winograd's method",
    )
    parser.add_argument("--rounds", type=int, default=3, help="exports a side (default 3)")
    parser.add_argument("--json", metavar="FILE", help="write everything measured")
    given = parser.parse_args(arguments)
    chosen = cases.chosen(parser, given.models)
    result = measure(chosen, given.target, given.baseline, given.rounds)
    if given.json:
        Path(given.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(markdown(result))
    return int(any("error" in row["now"] for row in result["exports"]))


def measure(chosen: list[str], target: str, commit: str, rounds: int) -> Result:
    """Of each model what this checkout's export and the commit's took; progress goes to standard
    error.
    """
    roots = {"now": ROOT, "before": baseline.checkout(commit)}
    for root in roots.values():
        once(cases.ALL[chosen[0]], target, root)
    rows = []
    for name in chosen:
        case = cases.ALL[name]
        taken: dict[str, list[Result]] = {side: [] for side in roots}
        for turn in range(rounds):
            for side in list(roots)[:: 1 if turn % 2 == 0 else -1]:
                print(f"{name}: {side}, round {turn + 1}", file=sys.stderr, flush=True)
                taken[side].append(once(case, target, roots[side]))
        least = {side: min(found, key=_total) for side, found in taken.items()}
        rows.append({"model": name, "size": case.size, **least})
    return {"exports": rows, "target": target, "baseline": commit, "machine": sides.machine()}


def once(case: cases.Case, target: str, root: Path) -> Result:
    """CPU seconds of `stages` and `total`, or an `error`."""
    with tempfile.TemporaryDirectory() as scratch:
        request: dict[str, Any] = {"model": str(case.path), "target": target}
        request |= {"out": f"{scratch}/model.tinyedge", "dims": dict(case.dims)}
        done = subprocess.run(
            [sys.executable, str(CHILD), json.dumps(request)],
            cwd=root,
            env={
                **environment(root, scratch),
                "PYTHONDONTWRITEBYTECODE": "",  # empty: bytecode is kept
                "PYTHONPYCACHEPREFIX": str(cases.CACHE / "bytecode"),
            },
            check=False,
            capture_output=True,
            text=True,
        )
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        return {"error": said[-1] if said else f"exit status {done.returncode}"}
    facts: Result = json.loads(done.stdout)
    return facts


def _total(found: Result) -> float:
    return float(found.get("total", float("inf")))


def compiled(found: Result) -> float | None:
    """CPU seconds from the model's file to the kernels, None where there was no export."""
    stages = value(found, "stages")
    apart = ("start", "golden", "write")
    return stages and sum(taken for stage, taken in stages.items() if stage not in apart)


def markdown(result: Result) -> str:
    """The table and what was measured on."""
    facts = result["machine"]
    failures = [
        f"{row['model']}, {side}: `{row[side]['error']}`"
        for row in result["exports"]
        for side in ("now", "before")
        if "error" in row[side]
    ]
    note = (
        f"Now / as of {result['baseline']}. CPU seconds of a process that exports once for "
        f"{result['target']}, with its compilers and nothing cached but Python's bytecode. Start: "
        "the interpreter and what it imports. Compile: from the model's file to the kernels. "
        "Golden: the expected outputs by the reference. The total has what is written, too. Bars: "
        f"the total within {TOTAL_BAR} of before, golden within the compile. "
        f"{facts['processor']}, load average {facts['load']:.1f} at the end, tinyedge as of "
        f"{facts['commit']}."
    )
    return as_markdown([table(result)], [*failures, note])


def table(result: Result) -> Table:
    rows = []
    for row in result["exports"]:
        now, before = row["now"], row["before"]
        cells = [f"{row['model']} {row['size']}"]
        for stage in ("start", "compile", "golden"):
            found = [
                compiled(side) if stage == "compile" else value(side, "stages", stage)
                for side in (now, before)
            ]
            cells.append(_pair(found))
        totals = [value(side, "total") for side in (now, before)]
        golden = value(now, "stages", "golden")
        cells += [_pair(totals), ratio(*totals), ratio(golden, compiled(now)), _held(row)]
        rows.append(cells)
    headings = [
        *("model", "start", "compile", "golden", "total", "ratio"),
        *("golden, of the compile", "bars held"),
    ]
    return f"Export for {result['target']}, CPU s: now / before", headings, rows


def _held(row: Result) -> str:
    total, before = value(row["now"], "total"), value(row["before"], "total")
    golden, compile = value(row["now"], "stages", "golden"), compiled(row["now"])
    bars = {"total": (total, before, TOTAL_BAR), "golden": (golden, compile, GOLDEN_BAR)}
    kept = [
        name
        for name, (taken, of, bar) in bars.items()
        if taken is not None and of is not None and taken <= bar * of
    ]
    return " and ".join(kept) or "neither"


def _pair(found: list[float | None]) -> str:
    return " / ".join(MISSING if seconds is None else number(seconds) for seconds in found)


if __name__ == "__main__":
    sys.exit(main())
