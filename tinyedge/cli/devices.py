"""`tinyedge devices`."""

from __future__ import annotations

import click

from tinyedge.cli.device import list_devices, why_none
from tinyedge.cli.output import say, say_json, table
from tinyedge.model import TARGETS


@click.command("devices")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> int:
    """List the devices of every target, the preferred one of each first; of a target without any,
    why it has none.

    Exits with 3 if there is none at all.
    """
    devices = {target: list_devices(target) for target in TARGETS}
    found = [info for listed in devices.values() for info in listed]
    if as_json:
        say_json([vars(info) for info in found])
        return 0 if found else 3
    if found:
        rows = [(info.target, info.name, info.kind, info.details) for info in found]
        table(("target", "device", "kind", "details"), rows)
    for target, listed in devices.items():
        if not listed and (reason := why_none(target)):
            say(f"{target}: none, {reason.because.rstrip('.')}; {reason.next}")
    return 0 if found else 3
