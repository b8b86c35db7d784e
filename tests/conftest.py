"""Fixtures for all tests: one open device per target and session."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench.chromium import VIDEO
from tests.cuda import shim
from tests.runtimes.compatible import Compatible, open_beside
from tests.runtimes.site import Site
from tinyedge.core.errors import DeviceError
from tinyedge.core.program.device import Device
from tinyedge.export.verify.browser import CHROMIUM_NAMES, FLAGS, SOFTWARE, Browser, open_browser
from tinyedge.model import TARGETS

SLOW_SECONDS = 3 * 3600  # of one slow test; most take minutes
FIRST = "mechanisms"  # of groups of models, the one that has each mechanism once
WHOLE = ("test_unique", "test_non_max_suppression")  # dozens of kernels each


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-goldens",
        action="store_true",
        help="write the committed kernels of tests/golden anew instead of comparing with them",
    )
    parser.addoption(
        "--cuda-order",
        choices=("forward", "reverse", "random"),
        default="forward",
        help="the order of threads where CUDA kernels run on the processor (default: forward)",
    )
    parser.addoption(
        "--cuda-sanitize",
        action="store_true",
        help="CUDA kernels on the processor by g++'s sanitizers; start with libasan preloaded",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests have hours, the others the limit of pyproject.toml."""
    for item in items:
        if _compiles_slowly(item):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))


def pytest_collection_finish() -> None:
    """What collecting made stays until the end: each look of the garbage collector at it, and at
    the modules, takes a tenth of the time of the tests. It looks at what is new less often, too.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def _compiles_slowly(item: pytest.Item) -> bool:
    """Whether a test is for long runs: OpenCL compiles slowly, and CUDA kernels run as C++ here.
    Plain kernels differ little from target to target: those of cpu and webgpu are in short runs.
    """
    call = getattr(item, "callspec", None)
    params = call.params if call is not None else {}
    long = getattr(item, "originalname", "") in WHOLE or params.get("group", FIRST) != FIRST
    plain = params.get("optimize") is False
    target = params.get("target")
    return target in ("qcom", "cuda") and (long or plain)


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for what is recorded of exports, in place of the user's own."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def reference_values(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tensors of tests are computed by the reference, but for those that are marked `eager`."""
    from tinyedge.eager.places import device

    with contextlib.ExitStack() as stack:
        if request.node.get_closest_marker("eager") is None:
            stack.enter_context(device("reference"))
        yield


@pytest.fixture(autouse=True)
def quick_compilers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Short tests compile kernels for longer than they run them: the compilers that stand for those
    of OpenCL's and CUDA's devices optimize in slow tests alone.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("slow") is None:
            patch.setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable")
            patch.setattr(shim, "OPTIMIZATION", "-O0")
        yield


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for compiled kernels, empty at first, so that no test depends on an earlier session.

    The processes of pytest-xdist share it.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kernels"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def torch_python() -> Path:
    """Python in an environment that has torch."""
    from tests.exporters.runner import python_of

    python = python_of("torch_files")
    if not python.exists():
        pytest.fail("there is no torch in .cache/exporters: run scripts/setup slow")
    return python


@pytest.fixture(scope="session")
def cpu_device(kernel_cache: Path) -> Iterator[Device]:
    from tinyedge.targets.cpu.device import open

    device = open(cache=kernel_cache, guard=True)
    yield device
    device.close()


@pytest.fixture(scope="session")
def webgpu_device() -> Iterator[Device]:
    from tinyedge.targets.webgpu.device import open

    device = open(requirements={})  # the limits that every device has
    yield device
    device.close()


@pytest.fixture(scope="session")
def qcom_device() -> Iterator[Device]:
    from tinyedge.targets.qcom.device import open

    device = open()
    yield device
    device.close()


@pytest.fixture(scope="session")
def cuda_device(kernel_cache: Path, request: pytest.FixtureRequest) -> Iterator[Device]:
    """A GPU where there is one, else the processor: see tests/cuda."""
    from tests.cuda.device import open

    order = request.config.getoption("--cuda-order")
    sanitize = request.config.getoption("--cuda-sanitize")
    device = open(shim.Shim(kernel_cache, order, sanitize=sanitize))
    yield device
    device.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The one Chromium: playwright allows one of its drivers at a time in a thread.

    Where there is none, tests are skipped, but not in CI.
    """
    try:
        opened = open_browser()
    except DeviceError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def cinema(browser: Browser) -> Iterator[Any]:
    """A Chromium whose videos may become textures and whose canvases show them, with a camera."""
    found = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    args = [*FLAGS, SOFTWARE, *VIDEO]
    chromium = browser.playwright.chromium.launch(executable_path=found, headless=True, args=args)
    yield chromium
    chromium.close()


@pytest.fixture(scope="module")
def compatible(browser: Browser) -> Iterator[Compatible]:
    """A Chromium that offers an adapter of WebGPU's compatibility mode, and no other."""
    opened = open_beside(browser)
    yield opened
    opened.chromium.close()


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Any]:
    context = browser.chromium.new_context()
    opened = context.new_page()
    opened.goto(site.url)
    yield opened
    context.close()


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    """The name of each target in turn."""
    return str(request.param)


@pytest.fixture
def device(target: str, request: pytest.FixtureRequest) -> Device:
    """The open device of `target`."""
    device: Device = request.getfixturevalue(f"{target}_device")
    return device
