"""Compiled functions as users have them: called here, and exported."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from tinyedge.api import export_graph, silent
from tinyedge.choices import choose_options, choose_profiles, for_training
from tinyedge.core.errors import InputError
from tinyedge.core.tensor.graph import Graphs
from tinyedge.eager.bundle import Entry, graph_of
from tinyedge.eager.jit import Jit
from tinyedge.eager.places import Place
from tinyedge.eager.sizes import Dim
from tinyedge.export.limits import Limits
from tinyedge.export.ports import check_ports
from tinyedge.export.source import MAIN

_log = logging.getLogger("tinyedge")


class Compiled(Jit):
    """A compiled function: call it, or export it."""

    def entry(
        self,
        *example: Any,
        outputs: Sequence[str] | None = None,
        states: Mapping[int, str] | None = None,
        **named: Any,
    ) -> Entry:
        """The function's graph for arguments like these, as an entry of a bundle (`graph_of`)."""
        call = self.call(self.function.bind(example, named))
        return graph_of(call, self.leaves(call), outputs, states)

    def export(
        self,
        out: str | Path,
        *,
        example: Sequence[Any],
        target: str = "webgpu",
        outputs: Sequence[str] | None = None,
        entry: str = MAIN,
        entries: Mapping[str, tuple[Callable[..., Any], Sequence[Any]]] | None = None,
        precision: str | None = None,
        optimize: bool = True,
        profile: str = "default",
        arch: str | Sequence[str] | None = None,
        fallback: str | None = None,
        name: str | None = None,
        golden: bool = True,
        golden_steps: int = 1,
        force: bool = False,
        progress: Callable[..., None] | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> Path:
        """Compile the function into a bundle and return the bundle's path.

        Donated arguments are states of the bundle: they start with the example's values, and each
        run updates them. Other arguments are inputs, by their parameter's name; a tensor in a tree
        by the way to it, as `model.0.weight`. What the function reads from around it is constant.

        Args:
            out: The bundle.
            example: Arguments, in order; sizes that a Dim leaves open stay open.
            outputs: Names of the tensors that it returns beside the new values of donated ones;
                default: the keys and places that they have in the result; `output` for one that
                has no key.
            entry: The name of this function's entry.
            entries: More functions, each with its example, by the names of their entries. Where an
                example has a tensor that is donated here, the entry reads that state:
                `{"main": (predict, (model, x))}` with the model of this example predicts by what
                this function trained. Their outputs are called by the same rule.
            golden_steps: Runs of the golden case, whose inputs are the example's.
            target: As for `export_onnx`, and so are all that are not named here.

        Raises:
            InputError, TraceError: As a call does; an option that does not fit the target.
        """
        *others, last = choose_profiles(target, profile)
        options = choose_options(target, precision, optimize=optimize, profile=last, arch=arch)
        first = self.entry(*example, outputs=outputs)
        graphs, given = {entry: first.graph}, dict(first.given)
        for other, (function, arguments) in _pairs(entries).items():
            traced = _reading(other, function, arguments, first, graphs)
            graphs[other] = traced.graph
            given.update(traced.given)
        # a run takes the first entry if it is not told which
        ordered = sorted(graphs, key=lambda each: each != MAIN)
        source = Graphs({each: graphs[each] for each in ordered}, first.states)
        check_ports(source)
        return export_graph(
            source,
            target,
            Path(out),
            for_training(options, precision, source),
            others=others,
            fallback=fallback,
            name=name,
            golden=golden,
            golden_steps=golden_steps,
            given=given,
            limits=Limits(),
            force=force,
            progress=progress or silent,
            warn=warn or _log.warning,
        )


def _pairs(entries: Any) -> Mapping[str, tuple[Callable[..., Any], Sequence[Any]]]:
    """More entries, where each is a function and the arguments of its example."""
    if entries is None:
        return {}
    if not isinstance(entries, Mapping):
        raise _no_entry("entries", entries)
    for name, value in entries.items():
        pair = isinstance(value, (tuple, list)) and len(value) == 2 and callable(value[0])
        if not pair or not isinstance(value[1], (tuple, list)):
            raise _no_entry(f"entry {name!r}", value)
    return entries


def _no_entry(subject: str, value: Any) -> InputError:
    return InputError(
        subject,
        f"it is of type {type(value).__name__}",
        id="jit.export",
        next='give each entry a function and its example: {"main": (predict, (model, x))}',
    )


def _reading(
    name: str,
    function: Callable[..., Any],
    example: Sequence[Any],
    first: Entry,
    others: Container[str],
) -> Entry:
    """One more entry, which reads the states of the first."""
    if name in others:
        raise InputError(
            f"entry {name!r}",
            "there are two of this name",
            id="jit.export",
            next="name this function's own entry by `entry=`",
        )
    compiled = function if isinstance(function, Compiled) else Compiled(function)
    try:
        traced = compiled.entry(*example, states=first.names)
    except TypeError as error:
        raise InputError(
            f"entry {name!r}",
            f"its function does not take the {len(example)} arguments of its example: {error}",
            id="jit.export",
            next="give an example for each parameter, in their order",
        ) from error
    if traced.states:
        raise InputError(
            f"entry {name!r}",
            f"it donates {traced.states[0].name!r}, and only one function of a bundle may",
            id="jit.export",
            next="export a function that donates nothing beside the one that does",
        )
    return traced


def jit(
    function: Callable[..., Any] | None = None,
    *,
    donate: str | Sequence[str] = (),
    device: Place | None = None,
    sizes: Mapping[str, Sequence[Dim | int | None]] | None = None,
) -> Any:
    """A function that is compiled for each kind of arguments when it is first called with them, and
    that `export` makes a bundle of.

    The function is pure: it gives trees of tensors (and other things) made of its arguments, of
    trees and of what it reads from around it. It is called again at the calls 2, 4, 8... with the
    same kind of arguments, and must make the same graph.

    Args:
        function: Written in Python; left out, a decorator with these options.
        donate: Names of parameters whose tensors become the result's: the first part of the result
            of the same structure may overwrite them. They cannot be used after the call.
        device: A `tinyedge.device`; default: the one that holds the arguments.
        sizes: Of parameters that are a tensor, the sizes that may differ from call to call:
            {"x": (Dim("N", 1, 64), None)}.

    Raises:
        InputError: There is no such parameter; in a call, a donated tensor, one that nothing of the
            result is like, a size that a Dim does not hold.
        TraceError: In a call, a value was asked for, or the function is not pure.
    """
    names = (donate,) if isinstance(donate, str) else tuple(donate)
    if function is None:
        return functools.partial(jit, donate=names, device=device, sizes=sizes)
    return Compiled(function, names, device, sizes)
