"""Random cases: so many steps, each of a random maker."""

from __future__ import annotations

from collections.abc import Collection

from tests.onnxfuzz.builder import Builder, Unsuitable
from tests.onnxfuzz.case import Case
from tests.onnxfuzz.makers import MAKERS
from tests.onnxfuzz.operators import FAMILIES
from tests.onnxfuzz.oracle import Oracle

assert FAMILIES  # importing them is what fills the table
TRIES = 8  # of a step, for each that is wanted


def generate(
    seed: int, oracle: Oracle, operators: Collection[str] = (), doubles: bool = True
) -> Case:
    """The case of a seed. operators: of these alone. doubles: also float64."""
    builder = Builder(seed, oracle, doubles)
    makers = [m for name, m in MAKERS.items() if not operators or name in operators]
    weights = [m.weight for m in makers]
    wanted = builder.integer(2, 12)
    for _ in range(TRIES * wanted):
        if len(builder.steps) == wanted:
            break
        chosen = builder.random.choices(makers, weights)[0]
        try:
            made = chosen.make(builder, chosen.operator)
        except Unsuitable:
            builder.drop()
            continue
        if isinstance(made, tuple):
            builder.add(*made)
        else:
            builder.add(made)
    return builder.case()
