"""What a misspelled name may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

SHOWN = 3  # names that an error suggests
LONGEST = 200  # characters of a name that is compared


def did_you_mean(name: str, known: Iterable[str], least: float = 0.6) -> str:
    """An error's next step for a name that is none of those known; "" where none is near.

    least: how much alike two names are, 0 to 1.
    """
    short = sorted({each for each in known if len(each) <= LONGEST})
    near = difflib.get_close_matches(name[:LONGEST], short, SHOWN, least)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""
