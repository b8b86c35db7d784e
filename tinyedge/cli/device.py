"""Devices for commands: opened for one bundle, or listed."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from tinyedge.api import open_device
from tinyedge.core.device import Device, DeviceInfo
from tinyedge.core.program import Program


def device_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--device, for commands that run a bundle."""
    return click.option(
        "--device", metavar="NAME", help="A part of a device's name, see `tinyedge devices`."
    )(function)


def list_devices(target: str) -> list[DeviceInfo]:
    """The devices of a target."""
    _quiet()
    found: list[DeviceInfo] = importlib.import_module(f"tinyedge.targets.{target}.device").devices()
    return found


@contextmanager
def opened(program: Program, device: str | None) -> Iterator[Device]:
    """The device of a program's target, closed at the end."""
    _quiet()
    running: Device = open_device(program, device)
    try:
        yield running
    finally:
        running.close()


def _quiet() -> None:
    """Vulkan drivers complain on standard error where a session has no such folder."""
    if os.name == "posix":
        os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
