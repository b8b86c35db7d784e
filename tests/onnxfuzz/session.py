"""Many cases: generated, run in groups, failures shrunk and told, all of it counted."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from tests.onnxfuzz.case import Case
from tests.onnxfuzz.generator import generate
from tests.onnxfuzz.oracle import Oracle, operators
from tests.onnxfuzz.runner import Outcome, Ready, compiled, evaluated, outcome, ready
from tests.onnxfuzz.shrink import shrink
from tinyedge.core.compiler.options import Options
from tinyedge.core.program.device import Device

FLOAT32 = ("webgpu", "qcom")  # targets that compute doubles as these, and say so by name


@dataclass
class Tally:
    """What has happened so far."""

    oracle: Oracle = field(default_factory=Oracle)
    verdicts: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    used: Counter[str] = field(default_factory=Counter)
    symbolic: int = 0
    examples: dict[str, str] = field(default_factory=dict)

    def refuse(self, why: str, case: Case) -> None:
        self.refusals[why] += 1
        self.examples.setdefault(why, case.name)

    def count(self, found: Outcome) -> None:
        self.verdicts[found.verdict] += 1
        if found.verdict == "refused":
            self.refuse(found.detail, found.case)


def session(
    seeds: Sequence[int],
    target: str,
    device: Device | None,
    tally: Tally,
    *,
    operators_of: Collection[str] = (),
    options: Options | None = None,
    together: int = 20,
    progress: Callable[[int], None] | None = None,
) -> Iterator[str]:
    """Reports of the seeds' cases that fail, shrunk. device: None for no target.

    progress: told after each program how many cases are done.
    """
    options = options or Options()
    doubles = target not in FLOAT32
    for first in range(0, len(seeds), together):
        some: list[Ready] = []
        found: list[Outcome] = []
        for seed in seeds[first : first + together]:
            try:
                case = generate(seed, tally.oracle, operators_of, doubles)
            except Exception:  # of our evaluator, where no other engine has an operator
                tally.verdicts["crash"] += 1
                yield f"g{seed}: crash while it was made\n{traceback.format_exc()}"
                continue
            if not case.steps:
                tally.verdicts["empty"] += 1
                continue
            tally.used.update(operators(case.steps))
            each = ready(case)
            if isinstance(each, Outcome):
                found.append(each)
                continue
            if each.refusal:
                tally.refuse(f"symbolic: {each.refusal}", case)
            tally.symbolic += each.case.worlds > 1
            by_reference = evaluated(each)
            if by_reference.failed or device is None:
                found.append(by_reference)
            else:
                some.append(each)
        if device is not None:
            found += compiled(some, target, device, options)
        for each_found in found:
            tally.count(each_found)
            if each_found.failed:
                yield report(each_found, target, device, options, tally.oracle)
        if progress is not None:
            progress(first + len(seeds[first : first + together]))


def report(
    found: Outcome, target: str, device: Device | None, options: Options, oracle: Oracle
) -> str:
    """A failure with the smallest model that fails so."""

    used = device if found.stage == target else None

    def fails(case: Case) -> bool:
        again = outcome(case, target, used, options)
        return (again.verdict, again.stage) == (found.verdict, found.stage)

    if not fails(found.case):
        return f"{found}\nonly together with others"
    small = shrink(found.case, fails, oracle)
    again = outcome(small, target, used, options)
    return f"{found}\nshrunk: {again.detail}\n{small.text()}"
