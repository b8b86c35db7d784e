"""`tinyedge devices`."""

from __future__ import annotations

import click

from tinyedge.cli.device import quiet
from tinyedge.cli.output import say, say_json, table
from tinyedge.listing import listed
from tinyedge.model import TARGETS


@click.command("devices")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> int:
    """List the devices of every target, the preferred one of each first; of a target without any,
    why it has none.

    Exits with 3 if there is none at all.
    """
    quiet()
    answers = listed(TARGETS)
    found = [info for answer in answers.values() for info in answer.devices]
    if as_json:
        say_json([vars(info) for info in found])
        return 0 if found else 3
    if found:
        rows = [(info.target, info.name, info.kind, info.details) for info in found]
        table(("target", "device", "kind", "details"), rows)
    for target, answer in answers.items():
        if answer.because:
            say(f"{target}: none, {answer.because.rstrip('.')}; {answer.next}")
    return 0 if found else 3
