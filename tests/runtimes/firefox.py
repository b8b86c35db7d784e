"""What a page says in Firefox, which nothing drives: it asks for an address that has the words."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.runtimes.site import serving

DRIVERS = Path("/usr/share/vulkan/icd.d")


def told(
    site: Path,
    script: str,
    *,
    headers: Mapping[str, str] | None = None,
    statuses: Mapping[str, int | list[int]] | None = None,
    webgpu: bool = False,
) -> str:
    """Serve the folder `site` and give what a module calls `say(...words)` with, joined by colons.

    headers and statuses are those of the site. webgpu: on the software driver; as it is installed,
    Firefox has none on Linux. Where Firefox is not there the test is skipped, but not in CI.
    """
    program = shutil.which("firefox-esr") or shutil.which("firefox")
    if program is None and not os.environ.get("CI"):
        pytest.skip("the package firefox-esr brings it")
    assert program is not None
    say = "const say = (...words) => fetch(`/seen:${encodeURIComponent(words.join(':'))}`);\n"
    (site / "firefox.html").write_text('<script type="module" src="firefox.js"></script>')
    (site / "firefox.js").write_text(say + script)
    profile = site / "profile"
    profile.mkdir()
    environment = {**os.environ, "HOME": str(site)}
    if webgpu:
        names = ("dom.webgpu.enabled", "gfx.webgpu.ignore-blocklist")
        preferences = "".join(f'user_pref("{name}", true);\n' for name in names)
        (profile / "user.js").write_text(preferences)
        environment["VK_ICD_FILENAMES"] = str(next(DRIVERS.glob("lvp_icd*.json")))
    with serving(site) as served:
        served.more.update(headers or {})
        served.statuses.update(statuses or {})
        command = [program, "--headless", "--no-remote", "--profile", str(profile)]
        with subprocess.Popen(
            [*command, f"{served.url}firefox.html"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as firefox:
            seen: list[str] = []
            ends = time.monotonic() + 180
            while not seen and firefox.poll() is None and time.monotonic() < ends:
                time.sleep(0.2)
                seen = [name for name in [*served.asked] if name.startswith("seen:")]
            firefox.terminate()
    assert len(seen) == 1
    return unquote(seen[0].removeprefix("seen:"))
