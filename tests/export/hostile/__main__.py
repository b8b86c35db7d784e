"""How each hostile model is answered, and what that took."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.export.hostile import CASES
from tests.export.hostile.confined import Server


def main(parts: list[str]) -> None:
    print(f"{'model':36} {'answer':22} {'CPU s':>6} {'MiB':>5}  what is said")
    with Server() as server:
        for name, (build, ids) in CASES.items():
            if parts and not any(part in name for part in parts):
                continue
            with tempfile.TemporaryDirectory() as folder:
                found = server.answer(build(Path(folder)), Path(folder))
            expected = found.id in ((ids,) if isinstance(ids, str) else ids)
            mark = " " if expected else "!"
            said = " | ".join(t[:70] for t in (found.subject, found.because, found.next))
            peak = found.peak >> 20
            print(
                f"{name:36}{mark}{found.id[:60]:22} {found.cpu:6.2f} {peak:5}  {said}", flush=True
            )


if __name__ == "__main__":
    main(sys.argv[1:])
