"""`python -m tests.bench.opencl`: bundles for qcom beside tinygrad, both on PoCL.

    python -m tests.bench.opencl                                # every model (long)
    python -m tests.bench.opencl onet minilm --json FILE        # FILE keeps what was measured
    python -m tests.bench.opencl pnet --quick --no-images
    python -m tests.bench.opencl --plots FOLDER                 # ratios as bars, SVG

Buffers of float32 are compared with tinygrad's; what images cost on PoCL and on Intel's runtime is
measured beside. All sides of a model run in turn, each in a process of its own.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.bench import cases
from tests.bench.opencl import peer, report
from tests.bench.opencl.compare import IMAGES, MAIN, Effort, compare
from tests.bench.report import write_plots

# tinygrad had not compiled it after ten minutes.
LEFT_OUT = ("swift_f0",)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.opencl", description="tinyedge beside tinygrad on PoCL."
    )
    cases.add_models(parser, LEFT_OUT)
    parser.add_argument("--quick", action="store_true", help="few and short blocks of runs")
    parser.add_argument("--no-images", action="store_true", help="only buffers")
    parser.add_argument("--json", metavar="FILE", help="write everything measured")
    parser.add_argument("--join", metavar="FILE", help="add the models of an earlier --json")
    parser.add_argument("--plots", metavar="FOLDER", help="write plots as SVG files")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    given = parser.parse_args(arguments)
    chosen = cases.chosen(parser, given.models, LEFT_OUT)
    effort = Effort(rounds=3, block=0.3) if given.quick else Effort()
    sides = MAIN if given.no_images else MAIN + IMAGES
    peer.install()
    result: dict[str, Any] = {
        "peer": peer.VERSION,
        "processors": os.cpu_count(),
        "left_out": [] if given.models else list(LEFT_OUT),
        "models": [],
    }
    earlier = json.loads(Path(given.join).read_text(encoding="utf-8")) if given.join else None
    for name in chosen:
        say = functools.partial(_say, name)
        result["models"].append(compare(cases.ALL[name], effort, sides, say))
        # After each model: what was measured stays where a later one is interrupted.
        if given.json:
            kept = _joined(result, earlier)
            Path(given.json).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    result = _joined(result, earlier)
    if given.plots:
        write_plots(report.plots(result), Path(given.plots))
    print(report.markdown(result) if given.markdown else report.text(result))
    return 0


def _joined(result: dict[str, Any], earlier: dict[str, Any] | None) -> dict[str, Any]:
    """With the models that only an earlier report has, in the order of the cases."""
    present = {entry["model"] for entry in result["models"]}
    models = earlier["models"] if earlier else []
    others = [entry for entry in models if entry["model"] not in present]
    order = list(cases.ALL)
    found = sorted([*result["models"], *others], key=lambda entry: order.index(entry["model"]))
    return {**result, "models": found}


def _say(model: str, text: str) -> None:
    print(f"{model}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
