"""Bundles in JavaScript runtimes that are no browsers: Deno (wgpu) and Node with Dawn."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyedge
from tinyedge.export.verify.browser import CHROMIUM_NAMES
from tinyedge.serve import Server

SCRIPTS = Path(__file__).parent / "js"
DENO = SCRIPTS / "node_modules" / ".bin" / "deno"
# Chromium's own Vulkan driver in software: Dawn takes no lavapipe as old as Debian 12's.
DRIVER = "vk_swiftshader_icd.json"


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    """Where they are missing, tests are skipped, but not in CI."""
    if not DENO.exists() and not os.environ.get("CI"):
        pytest.skip(f"`npm ci` in {SCRIPTS} brings them")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernels that share a layout and read memory as vectors here, as single numbers there."""
    out = tmp_path_factory.mktemp("runtimes") / "bundle"
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    return tinyedge.export_function(
        lambda x: {"a": x.exp().sum(0), "b": x.exp().sum(0).sum(), "c": x.max(1).exp()},
        {"x": x},
        target="webgpu",
        out=out,
    )


def check(command: list[str], runtime: str, bundle: Path) -> Any:
    with Server(bundle) as server:
        done = subprocess.run(
            [
                *command,
                str(SCRIPTS / "check.mjs"),
                runtime or f"{server.url}tinyedge.js",
                server.url,
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def check_faults(seen: Any) -> None:
    assert seen["without"] == "device.webgpu"
    assert seen["faults"] == {
        "without COPY_SRC": "run.input.buffer",
        "destroyed": "run.input.buffer",
        "no buffer": "run.dtype",
        "right": "none",
        "relative": "load.url",
    }
    assert (seen["shared"], seen["disposed"]) == ("none", "run.disposed")


def test_deno(bundle: Path) -> None:
    command = [str(DENO), "run", "--allow-all", "--no-lock", "--reload", "--unstable-webgpu"]
    seen = check(command, "", bundle)
    assert seen["report"]["passed"], seen["report"]
    check_faults(seen)


def test_node(bundle: Path) -> None:
    """Dawn on a software driver computes; without one its null backend shows the errors."""
    node, chromium = shutil.which("node"), next(filter(None, map(shutil.which, CHROMIUM_NAMES)), "")
    assert node, "npm comes with it"
    assert chromium, "scripts/setup installs it"
    folders = (Path(chromium).resolve().parent, Path("/usr/lib") / Path(chromium).name)
    driver = next(found for folder in folders if (found := folder / DRIVER).exists())
    runtime = (bundle / "tinyedge.js").as_uri()
    seen = check(["env", f"VK_ICD_FILENAMES={driver}", node], runtime, bundle)
    assert seen["computes"] and seen["report"]["passed"], seen["report"]
    check_faults(seen)
    check_faults(check(["env", "VK_ICD_FILENAMES=/dev/null", node], runtime, bundle))
