"""Products of matrices."""

from __future__ import annotations

from tests.onnxfuzz.builder import FLOATS, Builder
from tests.onnxfuzz.makers import Made, maker

KINDS = (*FLOATS, "int32", "int64", "uint32")


@maker("MatMul", weight=3)
def matmul(g: Builder, op: str) -> Made:
    x = g.pick(KINDS, 1, 4)
    shape = g.shape_of(x)
    batch = [1 if g.chance(0.3) else size for size in shape[:-2]]
    batch = batch[g.integer(0, len(batch)) :] if g.chance(0.4) else batch
    columns = () if not batch and g.chance(0.2) else (g.size(),)
    y = g.leaf(g.kind_of(x), (*batch, shape[-1], *columns))
    if g.chance(0.3) and len(shape) >= 2:
        y = g.leaf(g.kind_of(x), (*batch, g.size(), shape[-2]))
        return g.node(op, [y, x])
    return g.node(op, [x, y])


@maker("Gemm", weight=2)
def gemm(g: Builder, op: str) -> Made:
    x = g.pick(FLOATS, 2, 2)
    rows, inner = g.shape_of(x)
    transposed = g.integer(0, 1)
    if transposed:
        rows, inner = inner, rows
    columns = g.size()
    second = g.integer(0, 1)
    kind = g.kind_of(x)
    inputs = [x, g.leaf(kind, (columns, inner) if second else (inner, columns))]
    if g.chance(0.6):
        shape = g.choice(((columns,), (rows, columns), (rows, 1), (1, columns), (), (1,)))
        inputs.append(g.leaf(kind, shape))
    alpha, beta = g.choice((None, 0.5, 2.0)), g.choice((None, 0.25, -1.0, 0.0))
    return g.node(op, inputs, transA=transposed, transB=second, alpha=alpha, beta=beta)


@maker("Einsum", weight=2)
def einsum(g: Builder, op: str) -> Made:
    """One to three operands of up to five letters, some twice in a term, some with an ellipsis."""
    letters = "ijklm"[: g.integer(1, 5)]
    sizes = {letter: g.choice((1, 2, 3, 4)) for letter in letters}
    kind = g.kind((*FLOATS[:2], "int32", "int64"))
    dots = g.chance(0.25)
    batch = g.shape(1, 2) if dots else ()
    terms, inputs = [], []
    for _ in range(g.choice((1, 2, 2, 2, 3))):
        term = [g.choice(letters) for _ in range(g.integer(1, 3))]
        shape = [sizes[letter] for letter in term]
        text = "".join(term)
        if dots and g.chance(0.8):
            place = g.integer(0, len(term))
            ends = [1 if g.chance(0.2) else size for size in batch]
            ends = ends[g.integer(0, len(ends)) :]
            shape[place:place] = ends
            text = f"{text[:place]}...{text[place:]}"
        terms.append(text)
        inputs.append(g.leaf(kind, tuple(shape), "" if kind in FLOATS else "plain"))
    used = sorted(set("".join(terms)) - {"."})
    equation = ",".join(terms)
    if g.chance(0.8):
        out = g.random.sample(used, g.integer(0, len(used)))
        text = "".join(out)
        if "..." in equation:
            place = g.integer(0, len(out))
            text = f"{text[:place]}...{text[place:]}"
        equation += f"->{text}"
    if g.chance(0.2):
        equation = equation.replace(",", " , ").replace("->", " -> ")
    return g.node(op, inputs, equation=equation)
