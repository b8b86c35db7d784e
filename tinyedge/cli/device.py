"""Devices for commands: opened for one bundle, or listed."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tinyedge.choices import find_target
from tinyedge.core.errors import InputError
from tinyedge.core.program.device import Device
from tinyedge.core.program.program import Program
from tinyedge.export.package.trust import is_known, record_place, remember
from tinyedge.model import open_device, pick

if TYPE_CHECKING:
    from tinyedge.export.bundle.reading import Bundle


def device_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--device, for commands that run a bundle."""
    return click.option(
        "--device", metavar="NAME", help="A part of a device's name, see `tinyedge devices`."
    )(function)


def trust_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--trust, for commands that run a bundle."""
    return click.option(
        "--trust",
        is_flag=True,
        help="Run native code of a bundle that was not exported by you on this machine.",
    )(function)


def variant_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--variant, for commands that run a bundle."""
    return click.option(
        "--variant",
        metavar="NAME",
        help="Of a bundle with programs for several profiles, which. Default: the best that this "
        "machine can run.",
    )(function)


def read_bundle(path: Path, variant: str | None) -> Bundle:
    """A bundle with the program that this machine runs, or that of the name."""
    from tinyedge.export.bundle.reading import read

    return read(path, choose=partial(pick, name=variant))


def check_trust(bundle: Bundle, trust: bool) -> None:
    """Ask before the native code of an unknown bundle is run; a yes is remembered.

    Raises InputError where the answer is no, or nobody can be asked.
    """
    if find_target(bundle.program.target).isolated or is_known(bundle.plan):
        return
    if not trust and sys.stdin.isatty() and sys.stderr.isatty():
        text = (
            f"{str(bundle.path)!r} is not among the bundles known to be exported by you on this "
            "machine. To run it is to run the native code that it holds. Do you trust who made it?"
        )
        trust = click.confirm(text, err=True)
    if not trust:
        raise InputError(
            f"bundle {str(bundle.path)!r}",
            "it is not among those known to be exported by you on this machine, listed in "
            f"{record_place()}; to run it is to run its native code",
            id="bundle.trust",
            supported="bundles that this user exported here; for webgpu, any",
            next="if you trust who made it, add --trust",
        )
    remember(bundle.plan)


@contextmanager
def opened(program: Program, device: str | None) -> Iterator[Device]:
    """The device of a program's target, closed at the end."""
    quiet()
    running: Device = open_device(program, device)
    try:
        yield running
    finally:
        running.close()


def quiet() -> None:
    """Vulkan drivers complain on standard error where a session has no such folder."""
    if os.name == "posix":
        os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
