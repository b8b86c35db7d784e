"""What an import refuses, as one error."""

from __future__ import annotations

from collections.abc import Sequence

from tinyedge.core.errors import InputError, UnsupportedOp

SHOWN = 50  # refused nodes that an error lists


def raise_refusals(label: str, errors: Sequence[InputError]) -> None:
    """One error for everything that was refused. label: the model's."""
    if not errors:
        return
    damaged = [error for error in errors if not isinstance(error, UnsupportedOp)]
    if damaged:
        raise damaged[0]
    if len(errors) == 1:
        raise errors[0]
    lines = [f"{error.subject}: {error.because}" for error in errors]
    shown = lines[:SHOWN]
    if len(lines) > SHOWN:
        shown.append(f"and {len(lines) - SHOWN} more")
    supported = sorted({error.supported for error in errors if error.supported})
    steps = sorted({error.next for error in errors if error.next})
    raise UnsupportedOp(
        f"{label}: {len(errors)} nodes cannot be imported",
        "\n             ".join(shown),
        id="model.unsupported",
        supported="; ".join(supported[:5]),
        next="; ".join(steps[:5]),
    )
