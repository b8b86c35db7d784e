"""A browser whose only adapter is one of WebGPU's compatibility mode: Chromium's of OpenGL ES."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tinyedge.export.verify.browser import BLANK, CHROMIUM_NAMES, FLAGS, Browser

# As where there is no core adapter: this machine has both.
SCRIPT = """() => {
  const ask = GPU.prototype.requestAdapter;
  globalThis.asked = [];
  GPU.prototype.requestAdapter = async function (options) {
    asked.push(options.featureLevel ?? "core");
    const found = options.featureLevel ? await ask.call(this, options) : null;
    if (found?.features.has("core-features-and-limits")) throw new Error("it is a core adapter");
    return found;
  };
}"""


class Compatible(Browser):
    """In its pages `asked` has the feature levels of the adapters that were asked for."""

    @contextmanager
    def page(
        self,
        folder: str | Path,
        start: str = BLANK,
        pages: Mapping[str, tuple[str, str]] | None = None,
    ) -> Iterator[Any]:
        with super().page(folder, start, pages) as page:
            page.evaluate(SCRIPT)
            yield page


def open_beside(browser: Browser) -> Compatible:
    """By the driver of another browser: playwright has one a thread. Close its `chromium`."""
    found = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    args = [*FLAGS, "--use-webgpu-adapter=opengles"]
    launch = browser.playwright.chromium.launch
    return Compatible(browser.playwright, launch(executable_path=found, headless=True, args=args))
