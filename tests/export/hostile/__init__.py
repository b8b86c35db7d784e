"""Models that no exporter would write: damaged, contradictory or made to do harm.

python -m tests.export.hostile [import|inspect|export] [part of a name ..]

prints how each is answered.
"""

from __future__ import annotations

from tests.export.hostile import files, graphs, sizes, work
from tests.export.hostile.build import Build, Cases, info, ints, model, node
from tests.export.hostile.graphs import NAMES

CASES: Cases = {**files.CASES, **graphs.CASES, **sizes.CASES, **work.CASES}

OPEN = work.OPEN
# Of an export, so that no golden case takes long.
OPTIONS = ("--limit", "golden_work=10000000")

__all__ = ["CASES", "NAMES", "OPEN", "OPTIONS", "Build", "Cases", "info", "ints", "model", "node"]
