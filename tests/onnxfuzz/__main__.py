"""Long runs: `python -m tests.onnxfuzz --count 10000 --seed 1 --target cpu`.

A failure is printed when it is found, with the smallest model that fails so; at the end stands what
was tried, which engine decided, and what was refused and why.
"""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.__main__ import opened
from tests.onnxfuzz.makers import MAKERS
from tests.onnxfuzz.runner import seconds
from tests.onnxfuzz.session import Tally, session
from tinyedge.core.compiler.options import Options
from tinyedge.model import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.onnxfuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="graphs to try (default: 500)")
    parser.add_argument("--seed", type=int, default=1, help="the first graph's seed")
    parser.add_argument(
        "--target",
        default="cpu",
        choices=(*TARGETS, "none"),
        help="what compiles and runs them; none: by the reference evaluator only",
    )
    parser.add_argument("--operators", default="", help="of these alone: Conv,Resize")
    parser.add_argument("--plain", action="store_true", help="without optimization")
    parser.add_argument("--together", type=int, default=25, help="graphs in one program")
    parser.add_argument("--stop", type=int, default=20, help="stop after so many failures")
    options = parser.parse_args()
    chosen = [name for name in options.operators.split(",") if name]
    unknown = [name for name in chosen if name not in MAKERS]
    if unknown:
        parser.error(f"no {unknown}; there are {', '.join(sorted(MAKERS))}")
    device = opened(options.target) if options.target != "none" else None
    tally = Tally()
    seeds = range(options.seed, options.seed + options.count)
    wrong = 0
    reports = session(
        seeds,
        options.target,
        device,
        tally,
        operators_of=chosen,
        options=Options(optimize=not options.plain),
        together=options.together,
        progress=lambda done: print(
            f"{done} graphs, {wrong} failures", file=sys.stderr, flush=True
        ),
    )
    for report in reports:
        wrong += 1
        print(report, end="\n\n", flush=True)
        if wrong >= options.stop:
            break
    print(summary(tally), flush=True)
    return int(wrong > 0)


def summary(tally: Tally) -> str:
    """What was tried, who decided, what was refused."""
    total = sum(tally.verdicts.values())
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in sorted(tally.verdicts.items()))
    engines = {engine for _, engine in tally.oracle.answered}
    answered = ", ".join(
        f"{engine} {sum(n for (_, e), n in tally.oracle.answered.items() if e == engine)}"
        for engine in sorted(engines)
    )
    lines = [
        f"{total} graphs: {verdicts}; {tally.symbolic} at two sizes; {seconds():.0f} s",
        f"{len(tally.used)} operators, {sum(tally.used.values())} nodes; decided by: {answered}",
    ]
    lines += [
        f"  refused {n}: {why} ({tally.examples[why]})" for why, n in tally.refusals.most_common(40)
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
