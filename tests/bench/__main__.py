"""`python -m tests.bench`: tinyedge, onnxruntime-web and LiteRT.js in one headless Chromium.

    python -m tests.bench --quick                        # real models and networks, not "more"
    python -m tests.bench onet resnet18 --json FILE      # these; FILE keeps all that was measured
    python -m tests.bench networks --plots FOLDER        # those of random weights; plots as SVG
    python -m tests.bench resnet18 --baseline 7fc6d63    # beside an older commit's bundle
    python -m tests.bench opennsfw --sides ours --markdown
    python -m tests.bench --tiles                        # only the hand-written matrix products

For each model all sides load in a fresh page of the same browser, one after the other, with the
same inputs; where that is quick it is repeated in the other order. Models that do not export
yet are listed with the reason. --quick: one page a side, few runs.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import models
from tests.bench import baseline, cases, report, tiles
from tests.bench.chromium import EXACT_TIMESTAMPS, open_chromium
from tests.bench.compare import LITERT, PEER, SIDES, compare, install_peers, peer_version
from tests.bench.side import Effort, adapter, bare
from tests.study import sides as study
from tinyedge.core.files import write_whole

GROUPS = {"real": [*cases.CASES], "networks": [*cases.NETWORKS], "more": [*cases.MORE]}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description="tinyedge beside onnxruntime-web in Chromium."
    )
    names = ", ".join([*cases.ALL, *GROUPS])
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help=f"of {names}; default: real networks"
    )
    parser.add_argument("--quick", action="store_true", help="one page a side, few runs")
    parser.add_argument("--rounds", type=int, help="pages a side, at most (default 3; quick: 1)")
    parser.add_argument(
        "--sides", nargs="+", choices=SIDES, help="default: all; peer, wasm: onnxruntime-web"
    )
    parser.add_argument("--profile", metavar="NAME", help="of our export: default or wide")
    parser.add_argument(
        "--baseline",
        metavar="COMMIT",
        help="also a bundle that this commit's tinyedge exports, with its runtime; "
        f"{baseline.COMMIT} is the last before tiles of registers and Winograd's method",
    )
    parser.add_argument("--tiles", action="store_true", help="only the matrix products")
    parser.add_argument("--no-tiles", action="store_true", help="leave the matrix products out")
    parser.add_argument("--json", metavar="FILE", help="write everything measured")
    parser.add_argument(
        "--join", metavar="FILE", action="append", help="add the models of an earlier --json"
    )
    parser.add_argument("--plots", metavar="FOLDER", help="write plots as SVG files")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.models) - set(cases.ALL) - set(GROUPS))
    if unknown:
        parser.error(f"no model called {', '.join(unknown)}; there are {names}")
    chosen = [] if given.tiles else list(given.models or ("real", "networks"))
    chosen = [model for name in chosen for model in GROUPS.get(name, (name,))]
    sides = tuple(given.sides or SIDES)
    effort = Effort(cpu=0.8, wall=20.0, block=0.25) if given.quick else Effort()
    rounds = given.rounds or (1 if given.quick else 3)
    if chosen and sides != ("ours",):
        install_peers()
    models.paths([name for name in chosen if name in cases.CASES])
    options = ("--profile", given.profile) if given.profile else ()
    older = given.baseline and (given.baseline, baseline.checkout(given.baseline))
    earlier = [json.loads(Path(file).read_text(encoding="utf-8")) for file in given.join or ()]

    def keep(result: dict[str, Any]) -> None:
        if given.json:
            text = json.dumps(functools.reduce(_joined, earlier, result), indent=1) + "\n"
            write_whole(Path(given.json), text.encode())

    result = measure(chosen, effort, rounds, sides, options, not given.no_tiles, older, keep)
    keep(result)
    result = functools.reduce(_joined, earlier, result)
    if given.plots:
        report.write_plots(report.plots(result), Path(given.plots))
    print(report.markdown(result) if given.markdown else report.text(result))
    return 0


def measure(
    chosen: list[str],
    effort: Effort,
    rounds: int,
    sides: tuple[str, ...],
    options: tuple[str, ...],
    products: bool,
    older: tuple[str, Path] | None = None,
    keep: Callable[[dict[str, Any]], None] = lambda result: None,
) -> dict[str, Any]:
    """The report of the chosen models. options: of our export; products: also matrix products;
    older: a commit and its files; keep: is given the report after each model, so that an hour's
    work is not lost with its last minute. Progress goes to standard error.
    """
    with open_chromium(EXACT_TIMESTAMPS) as chromium:
        result: dict[str, Any] = {
            "peer": peer_version() if PEER.is_dir() else "",
            "litert": peer_version(LITERT / "core") if LITERT.is_dir() else "",
            "chromium": chromium.version,
            "processors": os.cpu_count(),
            "models": [],
        }
        if older:
            result["baseline"] = older[0]
        # First: it also starts the GPU process, which either side would otherwise pay for.
        _say("matrix products" if products else "a first page")
        result["by_hand"] = tiles.by_hand(chromium) if products else _warm(chromium)
        result["by_tinyedge"] = tiles.by_tinyedge(chromium, effort) if products else {}
        result["adapter"] = adapter(chromium)
        if chosen:
            _say("a page with one launch")
            result["bare"] = bare(chromium, 5)
        for name in chosen:
            case = cases.ALL[name]
            say = functools.partial(_say_of, name)
            files = older and older[1]
            entry = compare(chromium, case, effort, rounds, sides, say, options, files)
            result["models"].append(entry)
            result["machine"] = study.machine()
            keep(result)
    result["machine"] = study.machine()
    return result


def _say_of(name: str, text: str) -> None:
    _say(f"{name}: {text}")


def _warm(chromium: Any) -> dict[str, Any]:
    tiles.by_hand(chromium, seconds=0.05, blocks=1)
    return {}


def _joined(result: dict[str, Any], earlier: dict[str, Any]) -> dict[str, Any]:
    """With what an earlier report has and this one has not, in the order of the cases."""
    present = {entry["model"] for entry in result["models"]}
    more = [entry for entry in earlier["models"] if entry["model"] not in present]
    order = list(cases.ALL)
    entries = sorted([*result["models"], *more], key=lambda entry: order.index(entry["model"]))
    products = {key: result[key] or earlier[key] for key in ("by_hand", "by_tinyedge")}
    return {**result, **products, "models": entries}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
