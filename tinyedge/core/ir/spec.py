"""The grammar of each stage: which operations may appear, and what must hold of them.

    tensor   sources, elementwise, movement, reduce, gather, assign, put, scatter, realize, loops;
             shapes agree; a size that is constant is an int
    kernel   sink > store > scalars over loads and ranges; every range is an output's, a reduction's
             or a stage's
    lowered  statements in order: see `spec_lowered`

A violation is a bug of the compiler: `check_*` raise InternalError naming the node and the rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from tinyedge.core import dtype as dt
from tinyedge.core.errors import InternalError
from tinyedge.core.ir import ops
from tinyedge.core.ir.memory import MEMORY
from tinyedge.core.ir.polynomial import bounds, terms
from tinyedge.core.ir.uop import Size, UOp, as_node, own_ranges, toposort

TENSOR_GROUPS = (
    *("source", "unary", "binary", "ternary", "cast", "movement", "reduce", "memory"),
    "loop",
)
REDUCTIONS = (ops.REDUCE_LOOP, ops.ATTEND_LOOP)
SCALAR_OPS = (ops.CONST, ops.SYMBOL, ops.RANGE, ops.PARAM, ops.LOAD, *REDUCTIONS, ops.STAGE)
OUTPUT_KINDS = ("loop", "serial", "grid", "local", "lane", "upcast", "vector")
REDUCE_KINDS = ("reduce", "unroll", "threads", "lanes")
BLOCK_KIND = "block"  # over blocks of a reduction, of which each has a total of its own
FLAT_KIND = "flat"  # of an output, which no move gives: threads of kernels that share a text
STAGE_KIND = "staged"  # a stage's own range
KINDS = (*OUTPUT_KINDS, *REDUCE_KINDS, BLOCK_KIND, FLAT_KIND, STAGE_KIND)
LEAST_OVER = 256  # elements of a loop from which one stage may lie in the memory of another
# What a thread or a lane has for itself: a stage's value is the same in all of them.
PRIVATE_KINDS = ("local", "lane", "threads", "vector", "lanes")


def _fail(stage: str, node: UOp, rule: str) -> InternalError:
    return InternalError(
        f"{stage}: {node!r}", rule, id=f"spec.{stage}", next="report this with the model"
    )


def check_tensor(roots: Iterable[UOp]) -> None:
    """The grammar of tensor graphs."""
    for node in toposort(roots):
        op = node.op
        if op.group not in TENSOR_GROUPS:
            raise _fail("tensor", node, f"{op} is no operation on tensors")
        if node.dtype.storage_type:
            raise _fail("tensor", node, f"{node.dtype} is no type to compute with")
        if op.arity >= 0 and len(node.src) != op.arity:
            raise _fail("tensor", node, f"{len(node.src)} operands instead of {op.arity}")
        _check_types("tensor", node)
        if any(isinstance(size, UOp) and size.op is ops.CONST for size in node.shape):
            raise _fail("tensor", node, "a size is a constant node instead of an int")
        if op is ops.LOOP:
            _check_loop(node)
        wrong = MEMORY[op].wrong(node) if op in MEMORY else ""
        if wrong:
            raise _fail("tensor", node, wrong)


def _check_loop(node: UOp) -> None:
    """What is carried keeps its shape and type."""
    carried = node.arg.carried
    if len(node.src) != 2 * len(carried):
        raise _fail("tensor", node, f"{len(node.src)} operands for {len(carried)} carried values")
    for value, first, next_ in zip(carried, node.src, node.src[len(carried) :], strict=False):
        facts = {(n.shape, n.dtype) for n in (value, first, next_)}
        if len(facts) > 1:
            raise _fail("tensor", node, f"a value is carried as {sorted(map(str, facts))}")


def _check_types(stage: str, node: UOp) -> None:
    """Operands of an elementwise operation have one type; conditions are bool."""
    op = node.op
    if op.group not in ("unary", "binary", "ternary"):
        return
    src = node.src
    if op is ops.WHERE:
        if src[0].dtype.kind != "b":
            raise _fail(stage, node, f"a condition of type {src[0].dtype}")
        src = src[1:]
    if any(s.dtype is not src[0].dtype for s in src):
        raise _fail(stage, node, f"operands of types {[s.dtype for s in src]}")


def same_threads(reduction: UOp) -> set[UOp]:
    """The ranges that a reduction over threads has of the same threads: more than one is wrong,
    because they would be one coordinate.
    """
    own = {r for r in own_ranges(reduction) if r.arg.kind == "threads"}
    return own | {r for r in reduction.ranges if own and r.arg.kind in ("lane", "threads")}


def same_lanes(reduction: UOp) -> set[UOp]:
    """The ranges that a reduction along the lanes of vectors has of lanes: more than one is wrong,
    because a value has one dimension of lanes.
    """
    own = {r for r in own_ranges(reduction) if r.arg.kind == "lanes"}
    depends = reduction.ranges
    if reduction.op is ops.ATTEND_LOOP:  # its values are taken lane by lane
        depends = reduction.src[0].ranges
    return own | {r for r in depends if own and r.arg.kind in ("lanes", "vector")}


def stage_fault(stage: UOp) -> str:
    """What is wrong with a stage; "" if nothing is."""
    value, *own = stage.src
    if value.dtype is not stage.dtype or value.dtype.kind == "b" or value.dtype.lanes > 1:
        return f"a stage of {value.dtype} holds {stage.dtype}, which is no number"
    if not own or any(r.op is not ops.RANGE or r.arg.kind != STAGE_KIND for r in own):
        return "a stage has ranges of its own"
    if any(r.src[0].op is not ops.CONST for r in own):
        return "the size of a stage is not known"
    for r in stage.ranges:
        if r.arg.kind in PRIVATE_KINDS:
            return f"what is staged differs along range {r.arg.number}, which is {r.arg.kind}"
    for node in toposort((value,)):
        if node.op is ops.REDUCE_LOOP and any(r.arg.kind == "threads" for r in node.src[1:]):
            return "what is staged is reduced over the threads that fill the stage"
        if node.op is ops.STAGE and not node.ranges.isdisjoint(own):
            return "a stage within a stage is another one at each of its steps"
    return ""


def stage_length(stage: UOp) -> int:
    """How many elements a stage holds."""
    return prod(r.src[0].arg for r in stage.src[1:])


def stages_over(sink: UOp, lanes: int) -> dict[UOp, UOp]:
    """Stages that may lie in the memory of others, where a thread is alone, and these: each element
    is made of the one at its place, which nothing needs after that. lanes: of a vector.
    """
    stages = [node for node in toposort((sink,)) if node.op is ops.STAGE]
    found: dict[UOp, UOp] = {}
    for stage in stages:
        for below in stages:
            if below is stage or below in found.values() or not _lies_over(stage, below, lanes):
                continue
            if below not in toposort((sink,), {stage}.__contains__):
                found[stage] = below
                break
    return found


def _lies_over(stage: UOp, below: UOp, lanes: int) -> bool:
    """Whether a stage is as large as another one and is filled by loops of which the inner ones, in
    whole vectors, read that at its own places. What else is read are rows of it, which are reduced
    before the inner loops begin.
    """
    value, *own = stage.src
    lengths = [int(r.src[0].arg) for r in own]
    alike = stage.dtype is below.dtype and stage.ranges == below.ranges
    alike = alike and lengths == [int(r.src[0].arg) for r in below.src[1:]]
    if not alike or stage.arg or below.arg or lengths[-1] % lanes:
        return False
    place: Size = 0
    for r, length in zip(own, lengths, strict=True):
        place = place * length + r
    wanted = terms(as_node(place))
    reads = [n for n in toposort((value,)) if n.op is ops.LOAD and n.src[0] is below]
    outside = toposort((value,), lambda node: node.op in REDUCTIONS)
    if [terms(n.src[1]) for n in reads if n in outside] != [wanted]:
        return False
    reduced = [n.src[1] for n in reads if n not in outside]
    rows = [r for r in own if any(r in place.ranges for place in reduced)]
    inner = prod(lengths[len(rows) :])
    if rows != own[: len(rows)] or inner < LEAST_OVER:
        return False
    first = sum((r * wanted[(r,)] for r in rows), as_node(0))
    columns = [as_node(place - first) for place in reduced]
    return all(
        column.ranges.isdisjoint(own) and 0 <= bounds(column)[0] and bounds(column)[1] < inner
        for column in columns
    )


def staged_bytes(sink: UOp, lanes: int) -> int:
    """Memory of all stages of a kernel, of which copies have their own. lanes: as `stages_over`
    takes them, 0 where threads share a workgroup's memory: then each has its own.
    """
    total = 0
    over = stages_over(sink, lanes) if lanes else {}
    for node in toposort((sink,)):
        if node.op is ops.STAGE and node not in over:
            copied = (r for r in node.ranges if r.arg.kind in ("upcast", "unroll"))
            copies = prod(int(r.src[0].arg) for r in copied)
            halves = 2 if node.arg else 1  # one is filled ahead
            total += stage_length(node) * node.dtype.itemsize * copies * halves
    return total


def check_kernel(sink: UOp) -> None:
    """The grammar of kernels, before and after moves."""
    if sink.op is not ops.SINK:
        raise _fail("kernel", sink, "a kernel is a sink of stores")
    bound: dict[UOp, UOp] = {}
    for node in toposort((sink,)):
        op = node.op
        if op is ops.RANGE:
            if node.arg.kind not in KINDS:
                raise _fail("kernel", node, f"no kind of range is called {node.arg.kind}")
            if len(node.src) != 1:
                raise _fail("kernel", node, "a range has a size")
        elif op in REDUCTIONS:
            for r in own_ranges(node):
                if r.op is not ops.RANGE or r.arg.kind not in (*REDUCE_KINDS, BLOCK_KIND):
                    raise _fail("kernel", node, f"a reduction over {r!r}")
                bound[r] = node
            if len(same_threads(node)) > 1:
                raise _fail("kernel", node, "a reduction over threads depends on them twice")
            if len(same_lanes(node)) > 1:
                raise _fail("kernel", node, "a reduction along lanes depends on lanes twice")
        elif op is ops.STAGE:
            if wrong := stage_fault(node):
                raise _fail("kernel", node, wrong)
        elif op is ops.LOAD and node.src[0].op is ops.STAGE:
            _check_staged(node)
        elif op is ops.LOAD:
            if node.src[0].op is not ops.PARAM or node.src[1].dtype is not dt.index:
                raise _fail("kernel", node, "a load is of a parameter at an index")
            if node.arg and node.src[-1].dtype is not dt.bool_:
                raise _fail("kernel", node, "the guard of a load is a condition")
        elif op is ops.SYMBOL and node.src:
            if node.src[0].op is not ops.PARAM or node.src[0].dtype is not dt.int32:
                raise _fail("kernel", node, "a count lies in a parameter of type int32")
        elif op is ops.STORE:
            if node.src[0].op is not ops.PARAM or not node.src[0].arg.written:
                raise _fail("kernel", node, "a store is to a parameter that is written")
            if node.src[1].dtype is not node.src[0].dtype:
                raise _fail("kernel", node, f"a {node.src[1].dtype} stored as {node.src[0].dtype}")
            if node.arg and node.src[-1].dtype is not dt.bool_:
                raise _fail("kernel", node, "the guard of a store is a condition")
        elif op is not ops.SINK and not op.elementwise and op not in SCALAR_OPS:
            raise _fail("kernel", node, f"{op} may not appear in a kernel")
        _check_types("kernel", node)
    for store in sink.src:
        for r in store.ranges:
            if r.arg.kind not in (*OUTPUT_KINDS, FLAT_KIND):
                raise _fail("kernel", r, "a reduction's range is used outside of its fold")


def _check_staged(load: UOp) -> None:
    """A load from a stage: inside of it, always."""
    if load.arg or len(load.src) != 2 or load.src[1].dtype is not dt.index:
        raise _fail("kernel", load, "a stage is read at one place, under no condition")
    low, high = bounds(load.src[1])
    if load.dtype is not load.src[0].dtype or low < 0 or high >= stage_length(load.src[0]):
        raise _fail("kernel", load, f"a load at {low}..{high} of a stage")
