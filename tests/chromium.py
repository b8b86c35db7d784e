"""Chromium for the folders whose tests need one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tinyedge.core.errors import DeviceError
from tinyedge.export.browser import Browser, open_browser


def opened() -> Iterator[Browser]:
    """A running Chromium, for a fixture. Where there is none, tests are skipped, but not in CI."""
    try:
        browser = open_browser()
    except DeviceError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    yield browser
    browser.close()
