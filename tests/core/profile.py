"""How property tests run here: the same examples every time, no database, no deadline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings


def examples(count: int) -> Callable[[Any], Any]:
    """Settings for a property test that tries `count` examples."""
    return settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
