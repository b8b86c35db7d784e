"""An app of Next.js with a model: rendered on a server by both routers, run in a browser.

Next.js and its compilers take 340 MB, so that `scripts/setup` installs them for the slow tests
alone.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.bundlers.test_bundlers import EXPECTED
from tinyedge.export.verify.browser import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HERE = Path(__file__).parent / "next"
NEXT = HERE / "node_modules" / "next" / "dist" / "bin" / "next"
APP = ("app", "pages", "classifier.js", "next.config.mjs", "package.json")
QUIET = {**os.environ, "NEXT_TELEMETRY_DISABLED": "1", "CI": "1"}


@pytest.fixture
def app(bundle: Path) -> Iterator[Path]:
    """A folder below the packages, which both compilers find from there."""
    if not NEXT.is_file():
        pytest.skip(f"`npm ci` in {HERE} brings it")
    (HERE / "build").mkdir(exist_ok=True)
    with TemporaryDirectory(dir=HERE / "build") as name:
        folder = Path(name)
        for part in APP:
            source = HERE / part
            (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / part)
        shutil.copytree(bundle, folder / "model.tinyedge")
        yield folder


@contextmanager
def started(app: Path) -> Iterator[str]:
    """The address of an app that was built."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["node", str(NEXT), "start", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(
        command, cwd=app, env=QUIET, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as server:
        try:
            url = f"http://127.0.0.1:{port}/"
            for _ in range(300):
                try:
                    urllib.request.urlopen(url, timeout=60).close()
                    break
                except ConnectionError:
                    assert server.poll() is None, server.stderr and server.stderr.read()
                except urllib.error.URLError as error:
                    assert isinstance(error.reason, ConnectionError), error
                time.sleep(0.1)
            yield url
        finally:
            server.terminate()


@pytest.mark.parametrize("compiler", ["--turbopack", "--webpack"])
def test_both_routers(compiler: str, app: Path, browser: Browser) -> None:
    done = subprocess.run(
        ["node", str(NEXT), "build", compiler],
        cwd=app,
        env=QUIET,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # What the page asks for lies in what was built.
    shutil.rmtree(app / "model.tinyedge")
    context = browser.chromium.new_context()
    try:
        with started(app) as url:
            for path, said in (("", "rendered on the server"), ("model", "imported on the server")):
                with urllib.request.urlopen(url + path) as answer:
                    assert said in answer.read().decode()
                page = context.new_page()
                page.goto(url + path)
                page.wait_for_function("globalThis.done")
                cores = page.evaluate("navigator.hardwareConcurrency")
                assert page.evaluate("globalThis.done") == [
                    [True, EXPECTED, None],
                    [True, EXPECTED, min(8, cores)],
                ]
    finally:
        context.close()
