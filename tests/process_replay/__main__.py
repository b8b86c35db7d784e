"""The command `python -m tests.process_replay`."""

from __future__ import annotations

import argparse
import sys

from tests.process_replay import corpus, replay, sides


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.process_replay", description=__doc__)
    parser.add_argument("base", nargs="?", help="default: where this branch left main, or HEAD~1")
    parser.add_argument("head", nargs="?", help="default: the working tree")
    parser.add_argument("--quick", action="store_true", help="the small corpus")
    arguments = parser.parse_args()
    try:
        base = sides.commit_of(arguments.base) if arguments.base else sides.usual_base()
        head = sides.commit_of(arguments.head) if arguments.head else None
        if (arguments.base and not base) or (arguments.head and not head):
            parser.error("no such commit; a shallow clone has few: git fetch --unshallow")
        if base is None:
            print(replay.NO_PARENT)
            return 0
        outcome = replay.compare(base, head, corpus.cases(quick=arguments.quick))
    except sides.ReplayError as error:
        print(f"process replay: {error}", file=sys.stderr)
        return 2
    print(outcome.text)
    return 0 if outcome.passes else 1


if __name__ == "__main__":
    sys.exit(main())
