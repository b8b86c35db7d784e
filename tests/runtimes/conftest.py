"""One Chromium for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tinyedge.core.errors import DeviceError
from tinyedge.export.browser import Browser, open_browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    pytest.importorskip("playwright")
    try:
        opened = open_browser()
    except DeviceError as error:
        pytest.skip(str(error))
    yield opened
    opened.close()
