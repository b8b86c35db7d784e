"""The command; see `python -m tests.export.backend --help`."""

from __future__ import annotations

import argparse
import faulthandler
import os
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from tests.export import backend
from tests.export.backend import expectations, front, gradients
from tests.export.backend.cases import Case, cases
from tests.export.backend.runner import (
    PLACES,
    Outcome,
    by_reference,
    choose,
    compiled,
    in_browser,
    on_device,
)
from tests.fuzz.__main__ import opened
from tinyedge.export.verify.browser import open_browser


def outcomes(
    place: str, chosen: Sequence[Case], listed: expectations.Expectations
) -> Iterator[Outcome]:
    """What cases do in a place."""
    if place == "reference":
        yield from by_reference(chosen)
        return
    alone = {case.name for case in chosen if not listed.of(case.name, place).startswith("pass")}
    with ExitStack() as stack:
        if place == "chromium":
            browser = open_browser()
            stack.callback(browser.close)
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tinyedge-backend-"))
            yield from compiled(chosen, "webgpu", in_browser(browser, Path(folder)), alone)
        else:
            device = opened(place)
            stack.callback(device.close)
            yield from compiled(chosen, place, on_device(device), alone)


def seconds() -> float:
    """Processor seconds of this process and of the compilers that it ran."""
    return sum(os.times()[:4])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.export.backend",
        description=backend.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pattern", nargs="?", default="", help="of the names of cases")
    parser.add_argument(
        "--on", default="", help=f"places, with commas between: {', '.join(PLACES)}"
    )
    parser.add_argument("--front", action="store_true", help="exported, loaded, run alone")
    parser.add_argument("--symbolic", action="store_true", help="with symbolic input sizes")
    parser.add_argument(
        "--gradients", action="store_true", help="of the cases, beside differences of their values"
    )
    parser.add_argument("--update", action="store_true", help="write the list anew")
    parser.add_argument("--every", type=int, default=1, help="only every so many of the cases")
    options = parser.parse_args()
    places = options.on.split(",") if options.on else PLACES if options.update else PLACES[:1]
    if set(places) - set(PLACES):
        parser.error(f"places are {', '.join(PLACES)}")
    if options.symbolic and (options.on or options.update):
        parser.error("symbolic sizes are for the reference evaluator, and have no list")
    if options.front and (
        options.update or options.symbolic or {"reference", "chromium"} & {*places}
    ):
        parser.error("the front door is that of a target, and has the target's list")
    chosen = choose(options.pattern, every=options.every)
    if not chosen:
        parser.error(f"ONNX's suite has no case whose name holds {options.pattern!r}")
    if options.gradients:
        return of_gradients(chosen, options.update)
    listed = expectations.load()
    totals = []
    bad = 0
    for place in places:
        start, begin = seconds(), time.perf_counter()
        found = []
        if options.front:
            doing = front.outcomes(chosen, place)
        elif options.symbolic:
            doing = by_reference(chosen, True)
        else:
            doing = outcomes(place, chosen, listed)
        for outcome in doing:
            found.append(outcome)
            if outcome.verdict != "pass" and not (options.update and outcome.verdict == "refused"):
                print(f"{place}: {outcome.name}: {outcome}", flush=True)
            if len(found) % 200 == 0:
                print(f"{place}: {len(found)} of {len(chosen)}", file=sys.stderr, flush=True)
        counts = Counter(outcome.verdict for outcome in found)
        bad += counts["wrong"] + counts["crash"]
        said = ", ".join(f"{counts[v]} {v}" for v in ("pass", "refused", "wrong", "crash"))
        took = f"{seconds() - start:.0f} CPU s, {time.perf_counter() - begin:.0f} s"
        more = [line for line in reasons(found) if line not in totals]
        totals += [f"{place}: {said} ({took})", *more]
        if options.update:
            listed.update(place, found)
    print("\n".join(totals))
    if options.update and bad:
        print("not written: a case is passed or refused, never wrong")
    elif options.update:
        listed.save({case.name for case in cases()} & listed.cases.keys())
    return int(bad > 0)


def of_gradients(chosen: Sequence[Case], update: bool) -> int:
    """Print what gradients of cases do; write the list of those that have none."""
    start = seconds()
    found = [gradients.outcome(case) for case in chosen]
    for outcome in found:
        if outcome.verdict in ("wrong", "crash"):
            print(f"{outcome.name}: {outcome}")
    counts = Counter(outcome.verdict for outcome in found)
    said = ", ".join(f"{counts[v]} {v}" for v in ("pass", "refused", "wrong", "crash"))
    print(f"gradients: {said} ({seconds() - start:.0f} CPU s)", *reasons(found), sep="\n")
    if update and len(found) == len(cases()):
        gradients.save(found)
    return int(counts["wrong"] + counts["crash"] > 0)


def reasons(found: Sequence[Outcome]) -> list[str]:
    """How many cases are refused for a reason, or pass with some inputs as constants."""
    number = re.compile(r"(?<![\w.])-?[0-9][0-9.e+]*")
    counts = Counter(
        f"{outcome.verdict}: {number.sub('N', outcome.detail)}"
        for outcome in found
        if outcome.detail and outcome.verdict in ("pass", "refused")
    )
    return [f"    {count:4} {reason}" for reason, count in counts.most_common()]


if __name__ == "__main__":
    faulthandler.enable()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    sys.exit(main())
