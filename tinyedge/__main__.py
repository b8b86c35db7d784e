"""`tinyedge` and `python -m tinyedge`: the command line, which is imported here."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and exit with its code, also where it is interrupted before it runs."""
    try:
        from tinyedge.cli import main as run

        run()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            print("\ninterrupted", file=sys.stderr)  # behind the terminal's ^C, as click does
        sys.exit(130)


if __name__ == "__main__":
    main()
