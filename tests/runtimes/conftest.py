"""One Chromium for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chromium import opened
from tinyedge.export.browser import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    yield from opened()
