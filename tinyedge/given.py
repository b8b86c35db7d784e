"""What callers of the public functions give: a value of another type is refused by name."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

from tinyedge.core.errors import InputError, RunError

F = TypeVar("F", bound=Callable[..., Any])
Test = Callable[[Any], bool]
Form = tuple[Test, str]  # whether a value is of the form, and the form in words


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_file(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, os.PathLike) and isinstance(os.fspath(value), str)
    )


def is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def _any(_: Any) -> bool:
    return True


def _map(values: Test, keys: Test = is_text) -> Test:
    def test(value: Any) -> bool:
        return isinstance(value, Mapping) and all(keys(k) and values(v) for k, v in value.items())

    return test


def _list_of(values: Test) -> Test:
    return lambda value: is_list(value) and all(map(values, value))


def _or(*tests: Test) -> Test:
    return lambda value: any(test(value) for test in tests)


def _perhaps(form: Form) -> Form:
    """The form, or None."""
    return _or(form[0], lambda value: value is None), form[1]


TEXT: Form = is_text, "a str"
FLAG: Form = (lambda value: isinstance(value, bool)), "True or False"
FILE: Form = is_file, "a path: a str or a Path"
CALLABLE: Form = callable, "a function"
ARRAYS: Form = _map(_any), 'a dict of arrays by name: {"image": array}'
TEXTS = _list_of(is_text)

FORMS: dict[str, Form] = {
    "path": FILE,
    "target": TEXT,
    "out": _perhaps(FILE),
    "dims": _perhaps(
        (
            _map(_or(is_whole, is_text)),
            'a dict of sizes and texts: {"batch": 1, "width": "32..1280:32", "x": "[1,3,?,?]"}',
        )
    ),
    "bounds": _perhaps((_map(is_whole), 'a dict of whole numbers: {"loop": 100}')),
    "outputs": _perhaps((_or(is_text, TEXTS), 'a list of names: ["scores"]')),
    "constants": _perhaps(
        (_map(lambda v: isinstance(v, Real)), 'a dict of numbers: {"sr": 16000}')
    ),
    "limits": _perhaps((_map(is_whole), 'a dict of whole numbers: {"nodes": 100_000}')),
    "precision": _perhaps(TEXT),
    "optimize": FLAG,
    "profile": TEXT,
    "arch": _perhaps((_or(is_text, TEXTS), 'a str such as "sm_87,sm_90", or a list of them')),
    "golden": FLAG,
    "golden_inputs": _perhaps(ARRAYS),
    "golden_steps": _perhaps((is_whole, "a whole number")),
    "states": _perhaps((_map(_or(is_text, TEXTS)), 'a dict: {"hidden": "hidden_out"}')),
    "state_init": _perhaps(ARRAYS),
    "entries": _perhaps((_map(_any), 'a dict of models by name: {"warp": "warp.onnx"}')),
    "slices": _perhaps((_map(_map(_any)), 'a dict of dicts: {"outputs": {"plan": (0, 100)}}')),
    "images": _perhaps((_map(_or(is_text, TEXTS)), 'a dict: {"x": "letterbox,rgb,imagenet"}')),
    "labels": _perhaps(
        (_or(is_file, is_list, _map(_any)), "a file of names, a list of them, or a dict by output")
    ),
    "debug_goldens": _perhaps((is_whole, "a whole number")),
    "train": _perhaps((_or(is_text, TEXTS), 'a pattern, or a list of them: "head.*"')),
    "loss": _perhaps((_or(is_text, TEXTS), 'a str, or a list: "cross_entropy:scores"')),
    "optimizer": (is_text, 'a str: "adam:lr=1e-3"'),
    "batch": _perhaps((is_whole, "a whole number")),
    "force": FLAG,
    "progress": _perhaps(CALLABLE),
    "warn": _perhaps(CALLABLE),
    "function": CALLABLE,
    "example_inputs": (_or(_map(_any), is_list), "a list of arrays, or a dict of them by name"),
    "device": _perhaps(TEXT),
}


def checked(function: F) -> F:
    """The function, which raises InputError for arguments of other types than `FORMS` has."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        try:
            given = signature.bind(*args, **named).arguments
        except TypeError as error:  # Python's own words, which name the function
            raise TypeError(f"{function.__qualname__}() {error}") from None
        for name, value in given.items():
            if name in FORMS and not FORMS[name][0](value):
                raise InputError(
                    f"argument {name!r} of {function.__name__}",
                    _said(value),
                    id="argument.type",
                    supported=FORMS[name][1],
                )
        return function(*args, **named)

    return call  # type: ignore[return-value]


def check_name(subject: str, value: Any, known: Sequence[str]) -> None:
    """Raise RunError for a name that is no text."""
    if not is_text(value):
        raise RunError(
            subject,
            _said(value),
            id="run.name",
            supported="a str",
            next=f"names: {', '.join(map(repr, known)) or 'none'}",
        )


def _said(value: Any) -> str:
    shown = repr(value)
    return f"it is {shown if len(shown) <= 80 else f'{shown[:80]}...'}, a {type(value).__name__}"
