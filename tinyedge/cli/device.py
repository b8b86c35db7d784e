"""From a target's name to a device: with the package root, the only place that knows the names."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from tinyedge.core.device import Device, DeviceInfo
from tinyedge.core.errors import DeviceError
from tinyedge.core.program import Program

TARGETS = ("webgpu", "cpu")


def device_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--device, for commands that run a bundle."""
    return click.option(
        "--device", metavar="NAME", help="A part of a device's name, see `tinyedge devices`."
    )(function)


def list_devices(target: str) -> list[DeviceInfo]:
    """The devices of a target."""
    found: list[DeviceInfo] = _module(target).devices()
    return found


@contextmanager
def opened(program: Program, device: str | None) -> Iterator[Device]:
    """The device of a program's target, closed at the end."""
    target = program.target
    if target not in TARGETS:
        raise DeviceError(
            f"target {target!r}",
            "this version of tinyedge cannot run it",
            id="device.target",
            supported=", ".join(TARGETS),
        )
    if target == "cpu":
        if device is not None and device != "cpu":
            raise DeviceError(
                f"device {device!r}",
                "the cpu target has one device",
                id="device.adapter",
                supported="cpu",
            )
        running = _module(target).open()
    else:
        running = _module(target).open(device, requirements=program.requirements)
    try:
        yield running
    finally:
        running.close()


def _module(target: str) -> Any:
    return importlib.import_module(f"tinyedge.targets.{target}.device")
