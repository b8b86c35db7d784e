"""Names of sizes that are arithmetic on other names, such as `past + new`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Sequence
from typing import cast

from tinyedge.core.ir.uop import Size

OPERATOR = re.compile(r"(//|[+*()]|(?<=\s)-(?=\s))")  # a name may hold a minus: `batch-size`
_PRECEDENCE = {"(": 0, "+": 1, "-": 1, "*": 2, "//": 2}
ARITHMETIC: dict[str, Callable[[Size, Size], Size]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
}
_OPERAND = re.compile(r"[0-9]{1,9}|[^\W\d]\w*")
LONGEST = 64  # names, numbers and operators of one expression


def postfix_of(text: str, names: Collection[str]) -> list[str]:
    """Integers, names and `+ - * // ( )` in postfix order (Dijkstra's shunting-yard algorithm).

    Empty where the text is anything else, or divides by something that is no positive integer.
    Other names than the given ones are words.
    """
    tokens = [token for part in OPERATOR.split(text) if (token := part.strip())]
    if len(tokens) > LONGEST:
        return []
    result: list[str] = []
    waiting: list[str] = []
    operand_next = True
    for token in tokens:
        is_operand = token not in ARITHMETIC and token not in "()"
        if operand_next != (is_operand or token == "("):
            return []
        if is_operand:
            if token not in names and not _OPERAND.fullmatch(token):
                return []
            if waiting and waiting[-1] == "//" and not token.strip("0").isdecimal():
                return []
            result.append(token)
            operand_next = False
        elif token == "(":
            if waiting and waiting[-1] == "//":
                return []
            waiting.append(token)
        else:
            least = 0 if token == ")" else _PRECEDENCE[token]
            while waiting and _PRECEDENCE[waiting[-1]] >= max(least, 1):
                result.append(waiting.pop())
            if token == ")":
                if not waiting:
                    return []
                waiting.pop()
            else:
                waiting.append(token)
                operand_next = True
    if operand_next or "(" in waiting:
        return []
    return result + waiting[::-1]


def addends_of(postfix: Sequence[str]) -> set[str]:
    return {token for token in postfix if token not in ARITHMETIC and not token.isdecimal()}


def slope_of(postfix: Sequence[str], name: str) -> int | None:
    """By how much an expression rises with a name; None where it is not always as much."""
    stack: list[tuple[int | None, int | None]] = []  # the value if it is known, and the slope
    for token in postfix:
        if token not in ARITHMETIC:
            stack.append((int(token) if token.isdecimal() else None, int(token == name)))
            continue
        (b, by_b), (a, by_a) = stack.pop(), stack.pop()
        both = None if a is None or b is None else cast(int, ARITHMETIC[token](a, b))
        if by_a == by_b == 0:
            stack.append((both, 0))
        elif by_a is None or by_b is None or token == "//":
            stack.append((both, None))
        elif token == "*":
            factor, rise = (a, by_b) if by_a == 0 else (b, by_a)
            stack.append((both, None if factor is None else factor * rise))
        else:
            stack.append((both, by_a + by_b if token == "+" else by_a - by_b))
    return stack[0][1]
