"""A function that is compiled, and one call of it: what it is given, and what is known of that."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tinyedge.core.errors import InputError
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import toposort
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.eager import tracing
from tinyedge.eager.describe import Description
from tinyedge.eager.held import is_leaf
from tinyedge.eager.realize import leaves_of
from tinyedge.eager.sizes import Open


@dataclass(frozen=True)
class Function:
    """A function, and the names of the parameters whose tensors are donated."""

    function: Callable[..., Any]
    donate: tuple[str, ...] = ()

    @cached_property
    def signature(self) -> inspect.Signature:
        try:
            return inspect.signature(self.function)
        except (TypeError, ValueError):
            raise InputError(
                f"{self.function!r:.80}",
                "its parameters are not known",
                id="jit.function",
                supported="functions written in Python",
            ) from None

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        return tuple(self.signature.parameters)

    @cached_property
    def donated(self) -> tuple[int, ...]:
        """The places of the arguments that are donated."""
        return tuple(self.parameters.index(name) for name in self.donate)

    @property
    def name(self) -> str:
        """For errors."""
        return getattr(self.function, "__qualname__", type(self.function).__name__)

    def check(self, names: Sequence[str]) -> None:
        """Raise InputError for a name that is no parameter's."""
        for name in names:
            if name not in self.parameters:
                raise InputError(
                    f"parameter {name!r} of {self.name}",
                    "there is no such parameter",
                    id="jit.parameter",
                    supported=", ".join(self.parameters) or "none",
                )

    @cached_property
    def _plain(self) -> bool:
        kinds = {parameter.kind for parameter in self.signature.parameters.values()}
        return kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY}

    def bind(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments in the order of the parameters; of one that collects several, these."""
        if not named and self._plain and len(args) == len(self.parameters):
            return args
        bound = self.signature.bind(*args, **named)
        bound.apply_defaults()
        return tuple(bound.arguments[name] for name in self.parameters)

    def invoke(self, arguments: Sequence[Any]) -> Any:
        """Call the function with arguments in the order of its parameters."""
        places: list[Any] = []
        options: dict[str, Any] = {}
        for parameter, value in zip(self.signature.parameters.values(), arguments, strict=True):
            if parameter.kind is parameter.VAR_POSITIONAL:
                places += value
            elif parameter.kind is parameter.VAR_KEYWORD:
                options.update(value)
            elif parameter.kind is parameter.KEYWORD_ONLY:
                options[parameter.name] = value
            else:
                places.append(value)
        return self.function(*places, **options)


class Call:
    """One call. key: equal for calls that differ in the values of tensors alone."""

    def __init__(self, function: Function, arguments: tuple[Any, ...], open: Open) -> None:
        self.function, self.arguments, self.open = function, arguments, open
        self.seen = Description(open.shapes)
        self.given_key = self.seen.key(arguments)
        self.reads = self.seen.key_of_function(function.function)
        self.tensors: list[Any] = [*self.seen.given, *self.seen.captured]
        self.lazy = [each for each in self.tensors if _is_lazy(each)]

    def inside(self) -> bool:
        """Whether the call is part of a function that is being traced."""
        if tracing.active():
            return True
        return bool(self.lazy) and any(map(_depends, self.lazy))


def _is_lazy(value: Any) -> bool:
    """Whether it is a tensor that is not computed."""
    if not isinstance(value, Tensor):
        return False
    node = value.node
    return not is_leaf(node) and node.op is not ops.CONST


def _depends(tensor: Tensor) -> bool:
    return any(n.arg.source.kind == "input" for n in leaves_of(toposort((tensor.node,))))
