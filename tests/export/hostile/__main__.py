"""How each hostile model is answered, and what that took."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.export.hostile import CASES, OPEN, OPTIONS
from tests.export.hostile.confined import Server


def main(parts: list[str]) -> None:
    command = parts.pop(0) if parts and parts[0] in ("import", "inspect", "export") else "import"
    print(f"{'model':36} {'answer':22} {'CPU s':>6} {'MiB':>5}  what is said")
    with Server() as server:
        everything = {name: (*case, []) for name, case in CASES.items()}
        for name, (build, ids, dims) in {**everything, **OPEN}.items():
            if parts and not any(part in name for part in parts):
                continue
            with tempfile.TemporaryDirectory() as folder:
                given = [*(OPTIONS if command == "export" else ())]
                given += [option for size in dims for option in ("--dim", size)]
                found = server.answer(build(Path(folder)), Path(folder), command, given)
            expected = found.id in ((ids,) if isinstance(ids, str) else ids)
            mark = " " if expected else "!"
            said = " | ".join(t[:70] for t in (found.subject, found.because, found.next))
            peak = found.peak >> 20
            print(
                f"{name:36}{mark}{found.id[:60]:22} {found.cpu:6.2f} {peak:5}  {said}", flush=True
            )


if __name__ == "__main__":
    main(sys.argv[1:])
