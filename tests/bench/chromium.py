"""One Chromium for measurements: its flags, its processes' CPU time, its pages."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinyedge.export.verify import browser

_TICK = 1.0 / os.sysconf("SC_CLK_TCK")

# Timestamps are otherwise rounded to 100 us. It changes nothing else.
EXACT_TIMESTAMPS = "--disable-dawn-features=timestamp_quantization"

# Videos may become textures, and there is a camera of 30 frames a second.
VIDEO = (
    *("--enable-features=Vulkan", "--use-vulkan=swiftshader", "--use-angle=vulkan"),
    *("--ignore-gpu-blocklist", "--use-fake-device-for-media-stream=fps=30"),
    *("--use-fake-ui-for-media-stream", "--autoplay-policy=no-user-gesture-required"),
)


@dataclass(frozen=True)
class Spent:
    """Seconds that passed between two readings: CPU of all processes, of the GPU's, and wall."""

    cpu: float
    gpu: float
    wall: float


class Chromium:
    """Headless Chromium on its software WebGPU adapter. `with open_chromium() as chromium: ...`"""

    def __init__(self, chromium: Any, driver: int) -> None:
        self.browser = chromium
        self._driver = driver
        self._seen: dict[int, tuple[float, bool]] = {}
        self.version = str(chromium.version)

    def cpu(self) -> dict[int, tuple[float, bool]]:
        """CPU seconds of each live process, and whether it is the GPU process."""
        readings = {}
        for pid in _descendants(self._driver):
            try:
                fields = _stat(pid)
                gpu = b"--type=gpu-process" in Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            readings[pid] = ((int(fields[11]) + int(fields[12])) * _TICK, gpu)
        return readings

    @contextmanager
    def page(self, script: str = "") -> Iterator[Any]:
        """A fresh page in a context of its own; `script` runs before any of the page's."""
        context = self.browser.new_context()
        try:
            if script:
                context.add_init_script(script)
            page = context.new_page()
            page.set_default_timeout(600_000)
            yield page
        finally:
            context.close()

    def processes(self, kind: str) -> set[int]:
        """Those of a kind: "renderer", "gpu-process"."""
        return processes(self._driver, kind)

    def stopwatch(self) -> Stopwatch:
        return Stopwatch(self)


class Stopwatch:
    """Started when made; `read()` gives what was spent since."""

    def __init__(self, chromium: Chromium) -> None:
        self._chromium = chromium
        self._cpu = chromium.cpu()
        self._wall = time.perf_counter()

    def read(self) -> Spent:
        wall = time.perf_counter() - self._wall
        total = gpu = 0.0
        for pid, (seconds, is_gpu) in self._chromium.cpu().items():
            spent = seconds - self._cpu.get(pid, (0.0, False))[0]
            total += spent
            gpu += spent if is_gpu else 0.0
        return Spent(total, gpu, wall)


@contextmanager
def open_chromium(*more: str) -> Iterator[Chromium]:
    """Start Chromium with the flags that tinyedge's own browser has, and `more`."""
    from playwright.sync_api import sync_playwright

    before = set(_children().get(os.getpid(), []))
    with sync_playwright() as playwright:
        (driver,) = set(_children().get(os.getpid(), [])) - before
        found = next(filter(None, map(_which, browser.CHROMIUM_NAMES)), None)
        chromium = playwright.chromium.launch(
            executable_path=found,
            headless=True,
            args=[*browser.FLAGS, browser.SOFTWARE, *more],
        )
        try:
            yield Chromium(chromium, driver)
        finally:
            chromium.close()


# Without processes of its own beside the page's.
ALONE = ("--disable-extensions", "--disable-features=SpareRendererForSitePerProcess")


@contextmanager
def undriven(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A fresh Chromium that shows a page and that nothing observes: the page itself says things.

    What drives a browser has it keep all that pages fetch, in their processes.
    """
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(_which, browser.CHROMIUM_NAMES)), None)
    if program is None:
        with sync_playwright() as playwright:
            program = playwright.chromium.executable_path
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        flags = [*browser.FLAGS, browser.SOFTWARE, *ALONE, f"--user-data-dir={home}"]
        process = subprocess.Popen(
            [program, *flags, url],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def processes(chromium: int, kind: str) -> set[int]:
    """Chromium's processes of a kind: a "renderer" shows pages."""
    found = set()
    for process in _descendants(chromium):
        with suppress(OSError):  # ended meanwhile
            if f"--type={kind}".encode() in Path(f"/proc/{process}/cmdline").read_bytes():
                found.add(process)
    return found


def owned(process: int) -> float:
    """A process's own memory, in MB: without pages of files. Of one that has ended none."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    sizes = dict(line.split(":") for line in lines if line.startswith(("RssAnon:", "RssShmem:")))
    return sum(int(size.split()[0]) for size in sizes.values()) * 1024 / 1e6


def _which(name: str) -> str | None:
    import shutil

    return shutil.which(name)


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name: state, parent, ..."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()


def _children() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int(_stat(int(entry.name))[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    return children


def _descendants(root: int) -> list[int]:
    children = _children()
    found: list[int] = []
    waiting = list(children.get(root, []))
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found
