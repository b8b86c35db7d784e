"""Models that no exporter would write: damaged, contradictory or made to do harm.

python -m tests.export.hostile [part of a name ..]   prints how each is answered
"""

from __future__ import annotations

from tests.export.hostile import files, graphs, sizes
from tests.export.hostile.build import Build, Cases, info, ints, model, node
from tests.export.hostile.graphs import NAMES

CASES: Cases = {**files.CASES, **graphs.CASES, **sizes.CASES}

__all__ = ["CASES", "NAMES", "Build", "Cases", "info", "ints", "model", "node"]
