"""The README's picture of a bundle's page: `python scripts/picture.py BUNDLE [docs/page.png]`.

Serves the bundle as `tinyedge serve` does, opens its page in headless Chromium, presses Run and
Verify, and takes the picture.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tinyedge.export.verify.browser import open_browser  # noqa: E402
from tinyedge.serve import Server  # noqa: E402

WIDTH, HEIGHT = 1000, 760
RUNS = "5"


def main(bundle: Path, picture: Path) -> None:
    browser = open_browser()
    try:
        with Server(bundle, name=bundle.resolve().name) as server:
            page = browser.chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.goto(server.url)
            page.wait_for_selector("#main", state="visible", timeout=120_000)
            page.fill("#runs", RUNS)
            for button in ("run", "verify"):
                page.click(f"#{button}")
                # The page turns its buttons off while it is busy.
                page.wait_for_selector(f"#{button}:enabled", timeout=300_000)
                status = page.text_content("#status")
                if status != "Ready":
                    raise SystemExit(f"{button}: {status} {page.text_content('#error')}")
            page.screenshot(path=str(picture), full_page=True)
    finally:
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs" / "page.png")
