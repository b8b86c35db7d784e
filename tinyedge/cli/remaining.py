"""What a model with refused nodes could still be exported to."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyedge.cli.output import say
from tinyedge.export.package.package import usual_place
from tinyedge.export.ports import PORTS

if TYPE_CHECKING:
    from tinyedge.export.onnx import Inspection


OPTIONS = {
    "--dim": "dims",
    "--bound": "bounds",
    "--constant": "constants",
    "--limit": "limits",
}


def remaining(found: Inspection, model: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs that are left, what could stand for the others, and a command that exports both,
    as many as a bundle can hold.

    options: the arguments of an export. Those that name inputs or outputs, which may be gone, such
    as states, entries and slices, are not in the command.
    """
    return {
        "outputs": list(found.imported.outputs),
        "blocked": {name: list(values) for name, values in found.blocked.items()},
        "command": _command(found, model, options) if found.remaining.outputs else None,
    }


def _command(found: Inspection, model: Path, options: Mapping[str, Any]) -> str:
    words = ["tinyedge", "export", str(model), "--target", options["target"]]
    for option, name in OPTIONS.items():
        for key, value in options[name].items():
            words += [option, f"{key}={value}"]
    for option in ("precision", "profile", "arch"):
        if options.get(option) is not None:
            words += [f"--{option}", options[option]]
    if not options.get("optimize", True):
        words.append("--no-optimize")
    if options.get("out", usual_place(model)) != usual_place(model):
        words += ["--out", str(options["out"])]
    names = list(found.remaining.outputs)[:PORTS]
    plain = [name for name in names if "," not in name]
    for text in [",".join(plain)] * bool(plain) + [name for name in names if "," in name]:
        words += ["--outputs", text]
    return shlex.join(words)


def print_remaining(facts: Mapping[str, Any]) -> None:
    """Print what `remaining` found."""
    if facts["command"] is None:
        say("nothing can still be exported: no output is left, and no value before what is refused")
        return
    say("can still be exported:")
    for name in facts["outputs"]:
        say(f"  output {name!r}")
    for name, values in facts["blocked"].items():
        instead = ", ".join(map(repr, values)) or "nothing"
        say(f"  in place of output {name!r}: {instead}")
    say()
    say(f"  {facts['command']}")
