"""One Chromium for this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chromium import opened
from tinyedge.export.browser import Browser


# Of this folder, not of the session: playwright allows one of its drivers at a time in a thread.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    yield from opened()
