"""Sizes as a Program writes them: trees of numbers and the names of symbols."""

from __future__ import annotations

from collections.abc import Mapping

from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import atom_key, bounds, terms
from tinyedge.core.ir.uop import Size, UOp, toposort
from tinyedge.core.program import program


def expression(size: Size) -> program.Expression:
    """A size as the Program writes it."""
    if isinstance(size, int):
        return size
    texts: dict[UOp, program.Expression] = {}
    for node in toposort((size,)):
        if node.op is ops.CONST:
            texts[node] = int(node.arg)
        elif node.op is ops.SYMBOL:
            texts[node] = _steps(node)
        elif node.op in (ops.ADD, ops.MUL):
            texts[node] = _polynomial(terms(node), texts)
        elif node.op in (ops.FLOORDIV, ops.MOD) and bounds(node.src[1])[0] < 1:
            dividend, divisor = (texts[s] for s in node.src)  # a size of 0 divides nothing
            texts[node] = (node.op.name, dividend, ("max", divisor, 1))
        else:
            texts[node] = (node.op.name, *(texts[s] for s in node.src))
    return texts[size]


def declared(node: UOp) -> program.Symbol:
    size = node.arg
    least, greatest = (size.offset + steps * size.step for steps in (size.min, size.max))
    return program.Symbol(size.name, least, greatest, size.step)


def _steps(node: UOp) -> program.Expression:
    name, step, offset = node.arg.name, node.arg.step, node.arg.offset
    above: program.Expression = ("sub", name, offset) if offset else name
    return ("floordiv", above, step) if step != 1 else above


def _polynomial(
    terms: Mapping[tuple[UOp, ...], int], texts: Mapping[UOp, program.Expression]
) -> program.Expression:
    """A sum of products; whole steps of a symbol are written as the size that the caller knows."""
    total: program.Expression | None = None
    constant = terms.get((), 0)
    for monomial, coefficient in sorted(
        terms.items(), key=lambda item: [atom_key(a) for a in item[0]]
    ):
        if not monomial:
            continue
        factors: list[program.Expression] = []
        for atom in monomial:
            step, offset = (atom.arg.step, atom.arg.offset) if atom.op is ops.SYMBOL else (0, 0)
            if step and coefficient % step == 0 and (not offset or len(monomial) == 1):
                coefficient //= step
                constant -= coefficient * offset
                factors.append(atom.arg.name)
            else:
                factors.append(texts[atom])
        term = factors[0]
        for factor in factors[1:]:
            term = ("mul", term, factor)
        term = ("mul", term, coefficient) if coefficient != 1 else term
        total = term if total is None else ("add", total, term)
    if total is None:
        return constant
    if constant:
        return ("add", total, constant) if constant > 0 else ("sub", total, -constant)
    return total
