"""One Chromium for this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tinyedge.core.errors import DeviceError
from tinyedge.export.browser import Browser, open_browser


# Of this folder, not of the session: playwright allows one of its drivers at a time in a thread.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    pytest.importorskip("playwright")
    try:
        opened = open_browser()
    except DeviceError as error:
        pytest.skip(str(error))
    yield opened
    opened.close()
