"""Derivatives of functions: from a function of tensors to one that gives its derivatives, too.

A function is called once, with tensors that stand for its arguments, so that what it computes from
them is known whatever they are; then the arguments take their places. It may read other tensors,
which are constants to it. Functions take and give trees of tensors (`trees`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tinyedge.core.gradient import reverse, trees
from tinyedge.core.gradient.reverse import pull_back
from tinyedge.core.ir import ops
from tinyedge.core.ir.rewrite import replaced
from tinyedge.core.ir.uop import UOp
from tinyedge.core.tensor.tensor import Tensor

Function = Callable[..., Any]


class _Places:
    """What stands for the leaves of trees while a function is called.

    A leaf is a Tensor object: where one occurs twice it is one variable; two that were made
    separately are two, even if they have the same value. given: the trees with tensors in place of
    arrays and numbers. inner: what stands for them.
    """

    def __init__(self, values: Sequence[Any], *, variables: bool = True) -> None:
        self._names: dict[int, Tensor] = {}
        self._values: dict[UOp, UOp] = {}
        self.given = trees.tensors(tuple(values), variables=variables)
        self.inner = trees.mapped(self._place, self.given)

    def _place(self, leaf: Tensor) -> Tensor:
        if id(leaf) not in self._names:
            name = f"argument {len(self._names)}"
            place = self._names[id(leaf)] = Tensor.input(name, leaf.shape, leaf.dtype)
            self._values[place.node] = leaf.node
        return self._names[id(leaf)]

    def filled(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Computed from the arguments themselves."""
        done = replaced([tensor.node for tensor in tensors], self._values)
        return [Tensor(done[tensor.node]) for tensor in tensors]


def _variables(values: Sequence[Any]) -> _Places:
    """Places for arguments by which there are gradients. Raises TypeError where one has none."""
    places = _Places(values)
    for value, tree in zip(values, places.given, strict=True):
        empty = tree is None or (isinstance(tree, (tuple, list, dict)) and not tree)
        if not (empty or isinstance(tree, trees.Structure) or trees.leaves(tree)):
            raise TypeError(
                f"a gradient by {type(value).__name__}, which has no tensors, arrays or floats: "
                "Tensor(value) makes a variable of a number or a list"
            )
    return places


def vjp(function: Function, *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """What the function gives for `primals`, and a function from gradients by that (a tree of the
    same structure) to gradients by each of the primals.

    Every tensor of the primals is of floats; else TypeError. Arrays and floats are tensors.
    """
    places = _variables(primals)
    outputs = function(*places.inner)
    inner = trees.leaves(outputs)
    wrt = trees.leaves(places.inner)

    def pull(cotangents: Any) -> tuple[Any, ...]:
        given = trees.same_leaves(outputs, cotangents, "cotangents")
        back = pull_back(inner, given, wrt)
        result: tuple[Any, ...] = trees.rebuilt(places.given, places.filled(back.gradients))
        return result

    return trees.rebuilt(outputs, places.filled(inner)), pull


def value_and_grad(
    function: Function, argnums: int | Sequence[int] = 0, *, has_aux: bool = False
) -> Function:
    """A function that gives what `function` gives, and its gradients by one argument or several.

    function: gives a scalar of floats, or with `has_aux` a pair of it and anything else. Gradients
    have the structure of the argument; for several argnums they are a tuple of such.
    Arrays and floats in it are tensors to the function; floats that are attributes of objects are
    not, and integers never. Raises TypeError for another result, or an argument with tensors that
    are not of floats, or with none.
    """

    @functools.wraps(function)
    def call(*values: Any, **options: Any) -> Any:
        several = not isinstance(argnums, int)
        numbers = tuple(argnums) if isinstance(argnums, Sequence) else (argnums,)
        chosen = [values[_position(number, len(values))] for number in numbers]
        places = _variables(chosen)
        inner = list(values)
        for number, tree in zip(numbers, places.inner, strict=True):
            inner[number] = tree
        result = function(*inner, **options)
        loss, aux = result if has_aux else (result, None)
        _check_loss(loss)
        wrt = trees.leaves(places.inner)
        back = pull_back([loss], [Tensor.full((), 1, loss.dtype)], wrt)
        others = trees.leaves(aux)
        found = places.filled([*back.outputs, *others, *back.gradients])
        value = trees.rebuilt(aux, found[1 : 1 + len(others)])
        gradients = trees.rebuilt(places.given, found[1 + len(others) :])
        return ((found[0], value) if has_aux else found[0]), (
            gradients if several else gradients[0]
        )

    return call


def _position(number: int, count: int) -> int:
    if not -count <= number < count:
        raise TypeError(f"a gradient by argument {number} of {count}")
    return number


def _check_loss(loss: Any) -> None:
    if not isinstance(loss, Tensor):
        raise TypeError(f"a gradient of {type(loss).__name__}: the function must give a tensor")
    if loss.shape != () or not loss.dtype.is_float:
        raise TypeError(
            f"a gradient of {loss.dtype} {list(loss.shape)}: the function must give a scalar of "
            "floats; sum it, or use vjp"
        )


def grad(
    function: Function, argnums: int | Sequence[int] = 0, *, has_aux: bool = False
) -> Function:
    """As `value_and_grad`, without the value: gradients, or with `has_aux` gradients and aux."""
    both = value_and_grad(function, argnums, has_aux=has_aux)

    @functools.wraps(function)
    def call(*values: Any, **options: Any) -> Any:
        value, gradients = both(*values, **options)
        return (gradients, value[1]) if has_aux else gradients

    return call


def jvp(function: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """What the function gives for `primals`, and its derivative in the direction of `tangents`.

    A pullback is linear in what it is given, and its transpose is the derivative: it is pulled back
    once more (J. Townsend, A new trick for calculating Jacobian vector products, 2017).
    """
    places = _variables(primals)
    outputs = function(*places.inner)
    inner = trees.leaves(outputs)
    along = trees.same_leaves(places.given, tuple(tangents), "tangents")
    floats = [tensor for tensor in inner if tensor.dtype.is_float]
    given = [Tensor.input("cotangent", tensor.shape, tensor.dtype) for tensor in floats]
    back = pull_back(floats, given, trees.leaves(places.inner))
    there = iter(pull_back(back.gradients, along, given).gradients)
    derivative = [
        next(there) if tensor.dtype.is_float else Tensor.full(tensor.shape, 0, tensor.dtype)
        for tensor in inner
    ]
    ones = {g.node: Tensor.full(g.shape, 1, g.dtype).node for g in given}  # any will do
    done = replaced([tensor.node for tensor in derivative], ones)
    found = places.filled([*inner, *(Tensor(done[tensor.node]) for tensor in derivative)])
    count = len(inner)
    return trees.rebuilt(outputs, found[:count]), trees.rebuilt(outputs, found[count:])


def checkpoint(function: Function) -> Function:
    """A function of the same values, of which gradients keep the arguments and nothing between:
    they compute it again, when the gradients by its results are there.

    Arguments and results are trees of tensors; options given by name, and what the function reads
    besides its arguments, are kept. T. Chen et al., Training Deep Nets with Sublinear Memory Cost,
    2016.
    """

    @functools.wraps(function)
    def call(*values: Any, **options: Any) -> Any:
        places = _Places(values, variables=False)
        outputs = function(*places.inner, **options)
        filled = places.filled(trees.leaves(outputs))
        kept = {id(leaf): leaf for leaf in trees.leaves(places.given)}
        return trees.rebuilt(outputs, reverse.checkpoint(filled, list(kept.values())))

    return call


def stop_gradient(tree: Any) -> Any:
    """The same values, as constants: no gradient flows through them."""

    def stopped(leaf: Tensor) -> Tensor:
        if not leaf.dtype.is_float:
            return leaf
        return Tensor(UOp(ops.STOP_GRADIENT, leaf.dtype, (leaf.node,)))

    return trees.mapped(stopped, tree)
