"""`tinyedge devices`."""

from __future__ import annotations

import click

from tinyedge.cli.device import list_devices
from tinyedge.cli.output import say, say_json, table
from tinyedge.model import TARGETS


@click.command("devices")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> int:
    """List the devices of every target, the preferred one of each first.

    Exits with 3 if there is none at all.
    """
    found = [info for target in TARGETS for info in list_devices(target)]
    if as_json:
        say_json([vars(info) for info in found])
    elif found:
        rows = [(info.target, info.name, info.kind, info.details) for info in found]
        table(("target", "device", "kind", "details"), rows)
    else:
        say("no device: pip install '.[webgpu,cpu]' in a checkout of tinyedge")
    return 0 if found else 3
