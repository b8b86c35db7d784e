"""Stage 7 of bundle.md: the values of expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tinyedge.export.bundle.manifest import INTEGER_LIMIT, refuse

Record = Mapping[str, Any]


@dataclass
class Sizes:
    """Values of expressions with every symbol at its `min` or `max`, or at given values."""

    manifest: Record
    end: str
    given: Sequence[int] = ()
    symbols: dict[str, int] = field(init=False)
    known: dict[Any, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        symbols = self.manifest["symbols"]
        values = self.given or [symbol[self.end] for symbol in symbols]
        names = ["$" + symbol["name"] for symbol in symbols]
        self.symbols = dict(zip(names, values, strict=True))

    def __call__(self, expression: Any) -> int:
        if isinstance(expression, int):
            return expression
        key = tuple(expression)
        value = self.known.get(key)
        if value is None:
            value = self.known[key] = evaluate_tokens(expression, self.symbols)
        return value


def evaluate_tokens(tokens: Sequence[Any], symbols: Mapping[str, int]) -> int:
    """The value of a flat prefix expression; `symbols` has keys such as "$H"."""
    stack: list[int] = []
    for token in reversed(tokens):
        if type(token) is int or token in symbols:  # no such value is beyond 53 bits
            stack.append(token if type(token) is int else symbols[token])
            continue
        if token in OPERATORS and len(stack) >= 2:
            first, second = stack.pop(), stack.pop()
            if token in ("floordiv", "ceildiv", "mod") and second < 1:
                raise refuse("bundle.expression", f"{_show(tokens)} divides by {second}")
            value = OPERATORS[token](first, second)
        else:
            raise refuse("bundle.expression", f"{_show(tokens)}: bad token {token!r:.80}")
        if abs(value) > INTEGER_LIMIT:
            raise refuse("bundle.expression", f"{_show(tokens)} exceeds 53 bits")
        stack.append(value)
    if len(stack) != 1:
        raise refuse("bundle.expression", f"{_show(tokens)} leaves {len(stack)} values")
    return stack[0]


OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "sub": lambda a, b: a - b,
    "floordiv": lambda a, b: a // b,
    "ceildiv": lambda a, b: -(-a // b),
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}


def _show(tokens: Sequence[Any]) -> str:
    return f"{list(tokens)!r:.120}"
