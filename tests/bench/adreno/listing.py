"""Reads what Mesa's compiler for Adreno GPUs prints of a kernel, and counts what a thread runs.

It prints three parts, with IR3_SHADER_DEBUG=cs: its last intermediate form (NIR), which has loops
as blocks, and their counters; the machine code, one instruction a line; and its own statistics,
with which the count here must agree.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FULL_REGISTERS = 96  # of four floats, of an Adreno 630: what the waves at work share
MOST_WAVES = 16

LOADS = {
    "texture": ("sam", "isam", "gather"),
    "buffer": ("ldg", "ldib"),
    "local": ("ldl",),
    "spill": ("ldp", "stp"),
}
PRODUCTS = ("mad.f", "mul.f")
MOVES = {"swz": 2, "gat": 4, "sct": 4}  # that are one line, and how many each is

_INSTRUCTION = re.compile(r"^((?:\([a-z]+\d*\))*)\s*([a-z][\w.]*)(.*)$")
_PHI = re.compile(r"%(\d+) = phi \w+: %\d+ \(0x([0-9a-f]+)\), \w+: %(\d+)$")
_ADD = re.compile(r"%(\d+) = iadd\S* %(\d+)(?:\.(\w)\3*)?, %\d+ \((0x[0-9a-fx, ]+)\)$")
_MOVE = re.compile(r"%(\d+) = mov (%\d+\.\w)$")
_COMPARE = re.compile(r"%(\d+) = [iu](ge|lt|eq|ne)!? (%\d+(?:\.\w)?), %\d+ \(0x([0-9a-f]+)\)$")
_LANES = "xyzw"


@dataclass(frozen=True)
class Listing:
    """What one thread of a kernel runs. Counts of a loop's body are times its iterations.

    of: by kind, as in LOADS, and "instructions", "nops", "products", "conversions", "moves".
    static: the same, each line once. full: registers of four floats. waits: instructions until a
    load's value is there, at least, as the compiler estimates. counted: all loops have constant
    bounds; where they do not, a loop is taken to run once.
    """

    of: Counter[str]
    static: Counter[str]
    full: int
    waits: int
    counted: bool

    @property
    def waves(self) -> int:
        """Groups of threads that a processor can hold at once."""
        return min(MOST_WAVES, FULL_REGISTERS // max(1, self.full) * 2)


def read(text: str) -> Listing:
    """The kernel of what was printed. Of several variants the last, which is the one that launches
    at no offset use. Raises ValueError where the print is not as this reader knows it.
    """
    lines = [re.sub(r"^MESA: \w+: ?", "", line).strip() for line in text.splitlines()]
    forms = [i for i, line in enumerate(lines) if line.startswith("NIR (final form)")]
    starts = [i for i, line in enumerate(lines) if line.startswith("Native code for")]
    if not forms or not starts or starts[-1] < forms[-1]:
        raise ValueError(f"no kernel was printed: {' '.join(lines)[:200]}")
    form, code = lines[forms[-1] : starts[-1]], lines[starts[-1] + 1 :]
    static, of, counted = _count(_instructions(code), iterations(form))
    stated = {
        name: int(count)
        for line in code
        if line.startswith("; CL prog")
        for count, name in re.findall(r"(\d+) ([\w()-]+)", line.split(":", 1)[1])
    }
    for name, ours in (("instr", "instructions"), ("nops", "nops")):
        if stated[name] != static[ours]:
            raise ValueError(f"{static[ours]} {ours} were read where Mesa says {stated[name]}")
    return Listing(of, static, stated["full"], stated["systall"], counted)


def iterations(form: Sequence[str]) -> list[int | None]:
    """How often each loop's body runs, in the order in which loops begin; None: not a constant."""
    found: list[int | None] = []
    open_blocks: list[tuple[int, int]] = []  # of loops: their number and depth
    depth = 0
    facts: list[_Counter] = []
    for line in form:
        depth -= line.startswith("}")
        if open_blocks and depth < open_blocks[-1][1] + 1 and line.startswith("}"):
            if "else" not in line:
                number, _ = open_blocks.pop()
                found[number] = facts.pop().count()
        if re.search(r"\bloop \{$", line):
            open_blocks.append((len(found), depth))
            found.append(None)
            facts.append(_Counter())
        elif facts:
            facts[-1].see(line)
        depth += line.endswith("{")
    return found


class _Counter:
    """What a loop's lines say of its counter. Values are named as they are printed: %7, %8.w."""

    def __init__(self) -> None:
        self._phis: dict[str, tuple[int, str]] = {}  # the first value, and what follows a value
        self._steps: dict[str, tuple[str, int]] = {}  # of sums: what is added to, and how much
        self._same: dict[str, str] = {}
        self._tests: dict[str, tuple[str, str, int]] = {}  # comparison, of what, with what
        self._if: list[tuple[str, bool]] = []  # the conditions around
        self._exit: tuple[str, bool] | None = None  # what leaves the loop if it is so

    def see(self, line: str) -> None:
        text = re.sub(r"\s*//.*$", "", line)
        if match := re.match(r"if (%\d+) \{$", text):
            self._if.append((match[1], True))
        elif text.startswith("} else {") and self._if:
            self._if[-1] = (self._if[-1][0], False)
        elif text == "}" and self._if:
            self._if.pop()
        elif text == "break" and self._if:
            self._exit = self._if[-1]
        elif match := _PHI.search(text):
            self._phis[f"%{match[1]}"] = (int(match[2], 16), f"%{match[3]}")
        elif match := _ADD.search(text):
            steps = [int(step, 16) for step in match[4].split(", ")]
            names = [f"%{match[1]}"]
            if len(steps) > 1:
                names = [f"%{match[1]}.{lane}" for lane in _LANES]
            for name, step in zip(names, steps, strict=False):
                self._steps[name] = (f"%{match[2]}", step)
        elif match := _MOVE.search(text):
            self._same[f"%{match[1]}"] = match[2]
        elif match := _COMPARE.search(text):
            self._tests[f"%{match[1]}"] = (match[2], match[3], int(match[4], 16))

    def count(self) -> int | None:
        if self._exit is None or self._exit[0] not in self._tests:
            return None
        comparison, value, bound = self._tests[self._exit[0]]
        if comparison not in (("ge", "eq") if self._exit[1] else ("lt", "ne")):
            return None
        for phi, (first, following) in self._phis.items():
            following = self._same.get(following, following)
            base, step = self._steps.get(following, ("", 0))
            if base == phi and step and value in (phi, following):
                return -(-(bound - first) // step)
        return None


@dataclass(frozen=True)
class _Line:
    name: str
    repeat: int
    nops: int
    target: str  # of a branch: a label
    label: str = ""  # a line that is a label alone


def _instructions(code: Iterable[str]) -> list[_Line]:
    """The lines of the code that each thread runs: without those that run once for all of them."""
    found: list[_Line] = []
    for line in code:
        if line.startswith((";", "@")) or not line:
            continue
        if match := re.match(r"^(l\d+):$", line):
            found.append(_Line("", 0, 0, "", match[1]))
            continue
        match = _INSTRUCTION.match(line)
        if match is None:
            raise ValueError(f"a line that is no instruction: {line}")
        flags = dict(re.findall(r"\((rpt|nop)(\d+)\)", match[1]))
        target = re.search(r"#(l\d+)", match[3])
        repeat, nops = int(flags.get("rpt", 0)), int(flags.get("nop", 0))
        found.append(_Line(match[2], repeat, nops, target[1] if target else ""))
    return _without_preamble(found)


def _without_preamble(lines: list[_Line]) -> list[_Line]:
    names = [line.name for line in lines]
    if "end" in names:
        lines = lines[: names.index("end") + 1]
    if "shps" in names and "shpe" in names:
        return lines[: names.index("shps")] + lines[names.index("shpe") + 1 :]
    return lines


def _count(
    lines: Sequence[_Line], times: Sequence[int | None]
) -> tuple[Counter[str], Counter[str], bool]:
    labels = {line.label: i for i, line in enumerate(lines) if line.label}
    ends: dict[int, int] = {}
    for i, line in enumerate(lines):
        if line.target and labels[line.target] < i:
            ends[labels[line.target]] = i
    counted = len(ends) == len(times) and None not in times
    weights = [1] * len(lines)
    if counted:
        for (start, end), count in zip(sorted(ends.items()), times, strict=True):
            for i in range(start, end + 1):
                weights[i] *= count or 1
    static: Counter[str] = Counter()
    dynamic: Counter[str] = Counter()
    for line, weight in zip(lines, weights, strict=True):
        for kind, count in _kinds(line).items():
            static[kind] += count
            dynamic[kind] += count * weight
    return static, dynamic, counted


def _kinds(line: _Line) -> dict[str, int]:
    """How much of each kind a line is."""
    if line.label:
        return {}
    moved = MOVES.get(line.name.split(".")[0], 0)
    count = moved or 1 + line.repeat
    found = {"instructions": count + line.nops, "nops": line.nops}
    if line.name == "nop":
        found["nops"] += count
    for kind, names in LOADS.items():
        if line.name.startswith(names):
            found[kind] = count
    if line.name.startswith(PRODUCTS):
        found["products"] = count
    if line.name.startswith("cov"):
        found["conversions"] = count
    if moved or line.name.startswith("mov"):
        found["moves"] = count
    return found
