"""What a run in Chromium spends by kind of launch: `python -m tests.bench.split minilm bert`.

    python -m tests.bench.split                          # minilm, magika, vit_tiny and bert
    python -m tests.bench.split resnet18 --rounds 5 --json FILE

Contractions are launches of convolutions and products, with what is computed beside their sums;
attention is its one kernel; reductions are norms, softmax, pooling; the others move or compute
element by element. That comes from what each kernel reduces and from the nodes of the model that it
computes.

A kind's CPU seconds are what a run takes less, of all of Chromium's processes, where the launches
of that kind have no workgroups. The rest is a run of which no launch has any: the page, bindings,
submits and reading back. All these are pages of one Chromium that take turns; the least of the
rounds counts. Each kind is measured by itself, so that their sum need not be the run.

The pace of the best product by hand is measured before and after. The floor is what it takes for
the FLOPs of the model's convolutions and products; those within attention are attention's.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.bench import cases, tiles
from tests.bench import flops as counter
from tests.bench.chromium import Chromium, open_chromium
from tests.bench.kernels import BLANK, LOAD, RUN
from tests.bench.report import MISSING, Result, Table, as_markdown, number, ratio
from tests.study import sides
from tinyedge.api import compile_model
from tinyedge.choices import choose_options
from tinyedge.core.compiler.schedule import layout
from tinyedge.core.compiler.schedule.launches import ScheduledLaunch
from tinyedge.core.compiler.state import Compilation
from tinyedge.core.errors import TinyedgeError
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import toposort
from tinyedge.export.bundle.manifest import encode
from tinyedge.export.options import choose_import
from tinyedge.serve import Server

MODELS = ("minilm", "magika", "vit_tiny", "bert")
KINDS = ("contractions", "attention", "reductions", "element by element")
BLOCK = 2.0  # CPU seconds of a page's turn, at least: they are counted in hundredths
MOST_RUNS = 500


def kind_of(launch: ScheduledLaunch, counted: Mapping[str, int]) -> str:
    """Of KINDS. counted: FLOPs of the model's convolutions and products by node."""
    nodes = toposort((launch.sink,))
    if any(node.op is ops.ATTEND_LOOP for node in nodes):
        return "attention"
    reductions = [node for node in nodes if node.op is ops.REDUCE_LOOP]
    found = [layout.contraction_of(each) for each in reductions]
    # a sum of products that all outputs have their own operands of is one of a norm
    if any(each and (each.rows or each.columns or each.window) for each in found):
        return "contractions"
    if not counted.keys().isdisjoint(parts(launch)):
        return "contractions"  # transforms of Winograd's method, parts put together, panels
    return "reductions" if reductions else "element by element"


def parts(launch: ScheduledLaunch) -> set[str]:
    """The model's nodes that a launch computes; some are joined, as `conv+batchnorm`."""
    return {part for node in launch.nodes for part in node.split("+")}


def kinds(state: Compilation, counted: Mapping[str, int]) -> list[str]:
    """Of each launch."""
    return [kind_of(launch, counted) for launch in state.launches]


def without(manifest: Mapping[str, Any], kinds: Sequence[str], left_out: Sequence[str]) -> Result:
    """A bundle's manifest whose launches of some kinds have no workgroups."""
    of_launch = iter(kinds)
    steps = [
        {**step, "grid": [0, 1, 1]}
        if step["op"] == "launch" and next(of_launch) in left_out
        else step
        for step in manifest["steps"]
    ]
    if next(of_launch, None) is not None:
        raise ValueError("the bundle has fewer launches than its model compiles to")
    return {**manifest, "steps": steps}


def measure(names: Sequence[str], rounds: int) -> Result:
    """The report. Progress goes to standard error."""
    with open_chromium() as chromium:
        tiles.beside(chromium)  # it also starts the GPU process
        rows = [of_model(chromium, cases.ALL[name], rounds) for name in names]
        return {"models": rows, "rounds": rounds, "machine": sides.machine()}


def of_model(chromium: Chromium, case: cases.Case, rounds: int) -> Result:
    """CPU seconds of a run and of its kinds, FLOPs, and the pace of a product by hand."""
    counted = counter.count(case.path, cases.inputs(case, cases.session(case.path)))
    importing = choose_import(dict(case.dims))
    state = compile_model(case.path, "webgpu", choose_options("webgpu"), importing)
    found = kinds(state, counted)
    bundle = cases.export(case, golden=False)
    manifest = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
    present = [kind for kind in KINDS if kind in found]
    left_out = {"run": (), **{kind: (kind,) for kind in present}, "rest": KINDS}
    variants = {name: without(manifest, found, those) for name, those in left_out.items()}
    paces = [tiles.beside(chromium)]
    least = _in_turn(chromium, case.model, bundle, variants, rounds)
    paces.append(tiles.beside(chromium))
    within = {
        node
        for n, each in enumerate(state.launches)
        if found[n] == "attention"
        for node in parts(each)
    }
    attention = sum(work for node, work in counted.items() if node in within)
    return {
        "model": case.model,
        "size": case.size,
        "pace": sum(paces) / 2,
        "launches": dict(Counter(found)),
        "flops": {"contractions": sum(counted.values()) - attention, "attention": attention},
        "run": least["run"],
        "rest": least["rest"],
        "kinds": {kind: least["run"] - least[kind] for kind in present},
    }


def _in_turn(
    chromium: Chromium, model: str, bundle: Path, variants: Mapping[str, Result], rounds: int
) -> dict[str, float]:
    """CPU seconds of a run by each manifest, the least of the rounds."""
    least: dict[str, float] = {}
    counts: dict[str, int] = {}
    with ExitStack() as stack:
        pages = {}
        for name, manifest in variants.items():
            text = encode(manifest).decode()
            own = {**BLANK, "manifest.json": ("application/json", text)}
            server = stack.enter_context(Server(bundle, pages=own))
            pages[name] = stack.enter_context(chromium.page())
            pages[name].goto(server.url + "blank.html")
            pages[name].evaluate(LOAD)
            counts[name] = _enough(chromium, pages[name])
        for turn in range(rounds):
            print(f"{model}: round {turn + 1}", file=sys.stderr, flush=True)
            for name in list(pages)[:: 1 if turn % 2 == 0 else -1]:
                watch = chromium.stopwatch()
                pages[name].evaluate(RUN, counts[name])
                taken = watch.read().cpu / counts[name]
                least[name] = min(taken, least.get(name, taken))
    return least


def _enough(chromium: Chromium, page: Any) -> int:
    """How many runs take so long that their CPU time can be told."""
    count = 1
    while True:
        watch = chromium.stopwatch()
        page.evaluate(RUN, count)
        taken = watch.read().cpu
        if taken >= BLOCK / 8 or count == MOST_RUNS:
            return max(1, min(MOST_RUNS, round(count * BLOCK / max(taken, 0.01))))
        count = min(MOST_RUNS, 4 * count)


def table(result: Result) -> Table:
    rows = []
    for row in result["models"]:
        flops = {kind: work / 1e9 for kind, work in row["flops"].items()}
        own, pace = row["kinds"].get("contractions"), row["pace"]
        whole = sum(flops.values())
        rate = MISSING if not own else number(flops["contractions"] / own)
        floors = flops["contractions"] / pace, whole / pace
        cells = [f"{row['model']} {row['size']}", number(row["run"]), ratio(row["run"], floors[1])]
        cells += [number(flops["contractions"]), rate, number(pace), ratio(own, floors[0])]
        for kind in KINDS:
            seconds = row["kinds"].get(kind)
            many = row["launches"].get(kind, 0)
            share = MISSING if seconds is None else f"{100 * seconds / row['run']:.0f} %"
            cells.append(MISSING if seconds is None else f"{number(seconds)}, {share} ({many})")
        together = row["rest"] + sum(row["kinds"].values())
        cells += [f"{number(row['rest'])}, {100 * row['rest'] / row['run']:.0f} %"]
        rows.append([*cells, ratio(together, row["run"])])
    headings = [
        *("model", "a run, CPU s", "of the floor", "GFLOP of contractions"),
        *("their GFLOP per CPU s", "by hand", "of their floor"),
        *(f"{kind}: CPU s (launches)" for kind in KINDS),
        *("rest", "sum of all, of a run"),
    ]
    return "A run in Chromium by kind of launch", headings, rows


def markdown(result: Result) -> str:
    facts = result["machine"]
    note = (
        f"CPU seconds of all of Chromium's processes, least of {result['rounds']} rounds in turn; "
        "a kind: what a run takes less where its launches have no workgroups; rest: a run of which "
        f"none has any. {facts['processor']}, load average {facts['load']:.1f} at the end, "
        f"tinyedge as of {facts['commit']}."
    )
    return as_markdown([table(result)], [note])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.split",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ", ".join(cases.ALL)
    default = ", ".join(MODELS)
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help=f"of {names}; default: {default}"
    )
    parser.add_argument("--rounds", type=int, default=3, help="turns of each page (default 3)")
    parser.add_argument("--json", metavar="FILE", help="write everything measured")
    given = parser.parse_args(arguments)
    try:
        result = measure(cases.chosen(parser, given.models or MODELS), given.rounds)
    except TinyedgeError as error:
        print(error, file=sys.stderr)
        return 1
    if given.json:
        Path(given.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(markdown(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
