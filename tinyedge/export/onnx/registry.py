"""The table of ONNX operators, and the node that an operator's function receives.

    @operator("Relu")
    def relu(node: Node, x: Tensor) -> Tensor:
        return x.relu()

The function gets the node's inputs in order (None for one left out) and returns its result, or a
list of results. `since` registers another function from that version of the operator set on.
`limits` says in a few words what the function does not take, for the table in docs/operators.md;
`refused` why an operator that only raises can never be imported. `foreign` marks an operator that
is in no operator set of ONNX, or not in one so old, but that other programs write all the same.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, Union

import numpy as np

import onnx
from tinyedge.core.dtype import DType
from tinyedge.core.errors import InputError, ModelError, UnsupportedOp
from tinyedge.core.ir.rewrite import substitute
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import Shape, Size, UOp
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.causes import next_step
from tinyedge.export.onnx.context import Call, Context, Scope, nested
from tinyedge.export.onnx.elements import Element
from tinyedge.export.onnx.equality import show, too_small, unequal
from tinyedge.export.onnx.known import element
from tinyedge.export.onnx.masks import Mask, sums_of_masks
from tinyedge.export.onnx.reader import element_type
from tinyedge.export.ports import LOOPS

Result = Union[Tensor, Sequence[Any], None]
Function = Callable[..., Any]
F = TypeVar("F", bound=Function)


@dataclass(frozen=True)
class Operator:
    """A registered function, from a version of its operator set on, and what it does not take."""

    since: int
    function: Function
    limits: str = ""
    refused: str = ""
    foreign: bool = False


_OPERATORS: dict[tuple[str, str], list[Operator]] = {}


def operator(
    name: str,
    *,
    since: int = 1,
    domain: str = "",
    limits: str = "",
    refused: str = "",
    foreign: bool = False,
) -> Callable[[F], F]:
    """Register the function of an operator, from version `since` of its operator set on."""

    def register(function: F) -> F:
        versions = _OPERATORS.setdefault((domain, name), [])
        versions.append(Operator(since, function, limits, refused, foreign))
        versions.sort(key=lambda each: each.since)
        return function

    return register


def lookup(domain: str, name: str, opset: int) -> Operator | None:
    """What is registered for an operator in an operator set, if anything is."""
    best = None
    for each in _OPERATORS.get((domain, name), ()):
        if each.since <= opset:
            best = each
    return best


def domains() -> list[str]:
    """The domains of the registered operators, sorted."""
    return sorted({domain for domain, _ in _OPERATORS})


def names(domain: str = "") -> list[str]:
    """The registered operators of a domain, sorted."""
    return sorted(name for d, name in _OPERATORS if d == domain)


class Refused:
    """The value of a node that cannot be imported, or that depends on one."""


REFUSED = Refused()


class Node:
    """One ONNX node: its attributes by typed getters, and what is known of its inputs at import.

    opset: the version of the operator set of its domain. label: how messages name it.
    """

    def __init__(
        self,
        proto: Any,
        domain: str,
        opset: int,
        name: str,
        attributes: dict[str, Any],
        context: Context,
        call_site: Call,
    ) -> None:
        self.op: str = proto.op_type
        self.domain = domain
        self.opset = opset
        self.name = name
        self.inputs = tuple(proto.input)
        self.outputs = tuple(proto.output)
        self.attributes = attributes
        self.context = context
        self.call_site = call_site
        self.different: tuple[Size, Size] | None = None  # sizes that must be equal, by `unequal`
        self._constants = 0
        self._read: set[str] = set()

    @property
    def label(self) -> str:
        return f"ONNX node {self.name!r} ({self.op}, opset {self.opset})"

    # Attributes.

    @property
    def unread(self) -> list[str]:
        """Attributes that the operator's function did not look at."""
        return sorted(set(self.attributes) - self._read)

    def has(self, name: str) -> bool:
        self._read.add(name)
        return name in self.attributes

    def _get(self, name: str, kind: int) -> Any:
        self._read.add(name)
        attribute = self.attributes.get(name)
        if attribute is None:
            return None
        if attribute.type != kind:
            want = onnx.AttributeProto.AttributeType.Name(kind)
            raise self.invalid(f"attribute {name!r} is not of type {want}")
        return attribute

    def integer(self, name: str, default: int) -> int:
        attribute = self._get(name, onnx.AttributeProto.INT)
        return default if attribute is None else int(attribute.i)

    def number(self, name: str, default: float) -> float:
        """A float attribute: a float32, as its default is."""
        attribute = self._get(name, onnx.AttributeProto.FLOAT)
        return float(np.float32(default)) if attribute is None else float(attribute.f)

    def text(self, name: str, default: str) -> str:
        attribute = self._get(name, onnx.AttributeProto.STRING)
        return default if attribute is None else attribute.s.decode("utf-8", "replace")

    def integer_list(self, name: str) -> list[int] | None:
        attribute = self._get(name, onnx.AttributeProto.INTS)
        return None if attribute is None else [int(i) for i in attribute.ints]

    def number_list(self, name: str) -> list[float] | None:
        attribute = self._get(name, onnx.AttributeProto.FLOATS)
        return None if attribute is None else [float(f) for f in attribute.floats]

    def text_list(self, name: str) -> list[str] | None:
        attribute = self._get(name, onnx.AttributeProto.STRINGS)
        return (
            None if attribute is None else [s.decode("utf-8", "replace") for s in attribute.strings]
        )

    def tensor(self, name: str) -> Tensor:
        """A tensor attribute, or a sparse one made dense, as a constant.

        Raises ModelError where it is missing.
        """
        kind = onnx.AttributeProto
        sparse = name in self.attributes and self.attributes[name].type == kind.SPARSE_TENSOR
        attribute = self._get(name, kind.SPARSE_TENSOR if sparse else kind.TENSOR)
        if attribute is None:
            raise self.invalid(f"attribute {name!r} is missing")
        subject = f"attribute {name!r} of {self.label}"
        proto = attribute.sparse_tensor if sparse else attribute.t
        self._constants += 1
        return self.context.decode(proto, sparse, subject, f"{self.name}/{self._constants}")

    def graph(self, name: str) -> Any:
        """A subgraph attribute. Raises ModelError where it is missing."""
        attribute = self._get(name, onnx.AttributeProto.GRAPH)
        if attribute is None:
            raise self.invalid(f"attribute {name!r} is missing")
        return attribute.g

    def dtype(self, name: str, default: DType) -> DType:
        """An element type given as an integer attribute."""
        code = self.integer(name, 0)
        return default if code == 0 else element_type(code, self.label)

    def axis(self, default: int, ndim: int, *, name: str = "axis", end: bool = False) -> int:
        """An axis attribute, made nonnegative and checked; `end` also allows ndim itself."""
        axis = self.integer(name, default)
        return ndim if end and axis == ndim else self.wrap(axis, ndim)

    def wrap(self, axis: int, ndim: int) -> int:
        """An axis counted from the end where it is negative. Raises ModelError."""
        if not -ndim <= axis < ndim:
            raise self.invalid(f"axis {axis} is out of range for {ndim} axes")
        return axis % ndim

    # Subgraphs.

    def call(
        self,
        graph: Any,
        inputs: Mapping[str, Any],
        number: int | str,
        *,
        conditional: bool = False,
        dynamic: bool = False,
    ) -> Call:
        """A run of a subgraph, for the walk: `results = yield node.call(...)`.

        number: of the iteration, or "turn" for all iterations of a loop. conditional: only a run
        knows whether.
        dynamic: only a run knows how many iterations there are.
        """
        scope = Scope(self.call_site.scope)
        scope.values.update(inputs)
        site = self.call_site
        in_loop_body = site.in_loop_body or number == "turn"
        iterations = site.iterations + dynamic
        if iterations > LOOPS:
            raise self.unsupported(
                f"it lies in {iterations - 1} loops of which only the run knows the number of "
                "iterations",
                supported=f"{LOOPS} such loops inside each other",
                next="make a number of iterations constant: such a loop is unrolled",
            )
        site = replace(
            site,
            in_loop_body=in_loop_body,
            conditional=site.conditional or conditional,
            iterations=iterations,
        )
        return self.context.subgraph(graph, scope, site, nested(f"{self.name}/{number}"))

    # What is known at import.

    def known(self, tensor: Tensor | None) -> Any:
        """The values of a tensor as a numpy array where they are known at import, else None."""
        if tensor is None:
            return None
        value = self.context.knowledge.value(tensor.cast(tensor.dtype.computed))
        return None if value is None or value.dtype == object else value

    def unknown(self, tensor: Tensor | None) -> bool:
        """Whether the values of a given tensor are not known at import."""
        return tensor is not None and self.known(tensor) is None

    def unknown_sizes(self, tensor: Tensor) -> bool:
        """Whether the values of a tensor are neither known at import nor sizes."""
        return self._value_with_counts(tensor) is None

    def bound(self, limit: int | None) -> int:
        """The most iterations or elements that only the run knows: `limit`, or what the caller
        said.

        Raises UnsupportedOp where there is neither.
        """
        self.context.bounded.add(self.name)
        given = self.context.bounds.get(self.name)
        known = [n for n in (limit, given) if n is not None and n < 2**31 - 1]
        if not known:
            raise self.unsupported(
                "only the run knows how many iterations or elements there are",
                supported="a number with a bound",
                next=f"give one: --bound {shlex.quote(f'{self.name}=1000')}",
            )
        return max(0, min(known))

    def dynamic_size(self, count: Tensor, most: Size, mask: Mask | None = None) -> Size:
        """A size that a run computes: `count`, an integer scalar, of at most `most`. mask: it is
        how many of its elements are true.

        Raises UnsupportedOp in an iteration of a loop, where there is no one such size.
        """
        if self.call_site.in_loop_body:
            raise self.unsupported(
                "each iteration of a loop computes how many elements its result has",
                supported="results of one size in every iteration",
                next="make the loop's number of iterations constant, so that it is unrolled, or "
                "take a "
                "result of fixed size: TopK of a constant K, or a mask and Where",
            )
        greatest = maximum(most)
        if not greatest:
            return 0
        given = self.context.bounds.get(self.name, greatest + 1)
        counts = self.context.counts
        return counts.add(self.name, count, greatest, bounded=given <= greatest, mask=mask)

    def constant_input(self, tensor: Tensor, what: str) -> Any:
        """The values of an input that must be known at import. Raises UnsupportedOp."""
        value = self.known(tensor)
        if value is None:
            raise self.unsupported(
                f"the input {what!r} is computed at run time",
                supported=f"a constant {what!r}",
                next=self.remedy(tensor, otherwise="fix the sizes it depends on with --dim"),
            )
        return value

    def length(self, tensor: Tensor, what: str) -> int:
        """How many elements an input has, which must be known at import."""
        length = product(tensor.shape)
        if not isinstance(length, int):
            raise self.unsupported(
                f"{what!r} has {show(length)} elements",
                supported=f"a fixed number of elements of {what!r}",
                next=self.remedy(length),
            )
        return length

    def sizes(self, tensor: Tensor, what: str, *, dynamic: bool = False) -> list[Size]:
        """The values of a 1-D or scalar integer input as sizes: ints, or expressions of symbols.

        dynamic: those that only a run knows are counts below the bound that the caller gave.
        """
        value = self._value_with_counts(tensor)
        if value is None and dynamic:
            parts = [element(tensor, place) for place in range(self.length(tensor, what))]
            return [
                self.dynamic_size(part, self.bound(None))
                if self.unknown_sizes(part)
                else self.sizes(part, what)[0]
                for part in parts
            ]
        if value is None:
            raise self.unsupported(
                f"the input {what!r} is computed at run time",
                supported=f"{what!r} computed from constants and shapes",
                next=self.remedy(tensor, otherwise="fix the sizes it depends on with --dim"),
            )
        items = value.reshape(-1).tolist()
        if not all(isinstance(item, (int, UOp)) for item in items):
            raise self.invalid(f"the input {what!r} does not hold integers")
        return [int(item) if isinstance(item, int) else item for item in items]

    def _value_with_counts(self, tensor: Tensor) -> Any:
        """What is known of a tensor if sums of masks are: sizes that a run counts."""
        value = self.context.knowledge.value(tensor)
        if value is not None:
            return value
        counts = self.context.counts
        named: dict[UOp, UOp] = {}
        for node, mask in sums_of_masks(tensor.node).items():
            size = counts.of_mask(mask)
            if size is None and not self.call_site.in_loop_body:
                size = self.dynamic_size(Tensor(node), mask.size, mask)
            if size is not None:
                named[node] = Tensor.from_size(size, node.dtype).reshape(node.shape).node
        if not named:
            return None
        (root,) = substitute((tensor.node,), named)
        return self.context.knowledge.value(Tensor(root))

    def element(self, tensor: Tensor, what: str) -> Element:
        """The value of a scalar input that is computed from constants and sizes."""
        value = self.context.knowledge.value(tensor)
        if value is None:
            self.constant_input(tensor, what)
        found: Element = value.reshape(-1).tolist()[0]
        return found

    def integers(self, tensor: Tensor, what: str) -> list[int]:
        """As `sizes`, where every one must be an int."""
        items = self.sizes(tensor, what)
        if not all(isinstance(item, int) for item in items):
            raise self.unsupported(
                f"the input {what!r} depends on sizes: {show(items)}",
                supported=f"a constant {what!r}",
                next=self.remedy(*items),
            )
        return items  # type: ignore[return-value]

    def listed(self, attribute: str, tensor: Tensor | None) -> list[int] | None:
        """Integers that older operator sets give as an attribute and newer ones as an input."""
        if tensor is not None:
            return self.integers(tensor, attribute)
        return self.integer_list(attribute)

    def constant(self, array: Any) -> Tensor:
        """A constant made by this node, under a name of its own."""
        self._constants += 1
        return self.context.constant(np.asarray(array), f"{self.name}/{self._constants}")

    def folded(self, tensor: Tensor) -> Tensor:
        """The tensor as a constant where its values are known at import."""
        self._constants += 1
        return self.context.knowledge.fold(tensor, f"{self.name}/{self._constants}")

    def spend(self, steps: int) -> None:
        """Count unrolled steps as nodes of the graph. Raises ModelError beyond the limit."""
        self.context.spend(steps, self.label)

    # Refusals.

    def remedy(
        self, *values: Tensor | Size, otherwise: str = "fix the size with --dim, to one number"
    ) -> str:
        """The next step where values or sizes must be known at export and are not.

        otherwise: where they depend on open sizes only, which --dim changes.
        """
        nodes = [v.node if isinstance(v, Tensor) else v for v in values if not isinstance(v, int)]
        return next_step(self.context.causes.of(nodes), otherwise)

    def smaller(self, *sizes: Size) -> str:
        """The next step where sizes are too large: a smaller greatest one."""
        return self.context.causes.smaller(sizes) or (
            "give the size a smaller greatest one with --dim, or fix it"
        )

    def unequal(self, a: Size, b: Size, *, what: str = "") -> InputError:
        """The error for two sizes that must be equal and are not, whatever an open one is.

        what: what the node does with them.
        """
        self.different = a, b
        subject = f"{self.label}, {what}" if what else self.label
        return unequal(subject, a, b, self.context.causes)

    def same_shape(self, shape: Shape, wanted: Shape, what: str) -> None:
        """Raise ModelError where the shape of an operand is another than it must be, InputError
        where it may be, by open sizes or numbers that only a run knows.
        """
        if len(shape) != len(wanted):
            raise self.invalid(f"{what} of {show(shape)} where {show(wanted)} is needed")
        for a, b in zip(shape, wanted, strict=True):
            if isinstance(a, int) and isinstance(b, int) and a != b:
                raise self.invalid(f"{what} of {show(shape)} where {show(wanted)} is needed")
        for a, b in zip(shape, wanted, strict=True):
            if a != b:
                raise self.unequal(a, b, what=f"whose {what} are {show(shape)}")

    def counts(self, size: Size) -> bool:
        """Whether only a run knows a size."""
        return isinstance(size, UOp) and bool(self.context.causes.of((size,)).count)

    def needs(self, size: Size, least: int, *, lenient: bool = False) -> None:
        """Raise InputError where an open size may be less than `least`.

        lenient: not where only a run knows it.
        """
        if lenient and self.counts(size):
            return
        error = too_small(self.label, size, least, self.context.causes)
        if error is not None:
            raise error

    def check_table(self, elements: int) -> None:
        """Count the elements of a constant to make. Raises ModelError beyond the limit."""
        self.context.make(elements, self.label)

    def warn(self, text: str) -> None:
        self.context.warn(f"{self.label}: {text}")

    def unsupported(self, because: str, *, supported: str = "", next: str = "") -> UnsupportedOp:
        """The error for a valid use that cannot be imported."""
        return UnsupportedOp(
            f"{self.label} cannot be imported",
            because,
            id="model.unsupported",
            supported=supported,
            next=next,
        )

    def invalid(self, because: str) -> ModelError:
        """The error for a node that breaks the rules of its operator."""
        return ModelError(f"{self.label} is invalid", because, id="model.node")
