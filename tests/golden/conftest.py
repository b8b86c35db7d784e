"""Whether goldens are written instead of compared: the option `--update-goldens`."""

from __future__ import annotations

import pytest


@pytest.fixture
def update_goldens(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-goldens"))
