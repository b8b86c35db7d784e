"""The driving example: its models, warp and states against numpy and onnxruntime, its program."""

from __future__ import annotations

import ctypes
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnxruntime
import pytest

from tests.examples import reference
from tests.examples.conftest import CAMERA, NARROW, Bundles, make
from tests.examples.reference import EXAMPLE, Array, Arrays
from tests.runtimes_c import build
from tests.runtimes_c.library import STATES, Context, Library
from tests.runtimes_c.test_models import ARM64, EMULATOR, needs_arm64
from tinyedge.core.program.program import Launch, Program
from tinyedge.core.program.replay import Replay
from tinyedge.export.bundle.reading import read
from tinyedge.export.verify.browser import Browser

KERNELS = 123  # of openpilot's model, as tinygrad compiles it
STEPS = 8
TURN = (0.01, 0.02, -0.015)
TOLERANCES = {"qcom": 2e-2}  # halves; 1e-4 elsewhere
PREFIXES = ("", "wide_")  # of the cameras' names
SLOW_TARGETS = [pytest.param(t, marks=pytest.mark.slow) for t in ("webgpu", "qcom", "cuda")]


class Runner(Protocol):
    """A bundle ready to run."""

    def run(self, inputs: Mapping[str, Array], entry: str) -> Mapping[str, Array]: ...
    def reset(self) -> None: ...
    def get_state(self, name: str) -> Array: ...


class InC:
    """A cpu bundle by the C runtime; the camera's rows have gaps between them."""

    def __init__(self, bundle: Path) -> None:
        build.run("make", "-s", "-C", bundle, "shared")
        self.context = Context(Library(bundle), threads=2)

    def run(self, inputs: Mapping[str, Array], entry: str) -> Mapping[str, Array]:
        return self.context.run({name: _with_gaps(array) for name, array in inputs.items()}, entry)

    def reset(self) -> None:
        self.context.check(self.context.library.c.te_reset(self.context.context))

    def get_state(self, name: str) -> Array:
        return self.context.get_state(self.context.find(STATES, name))


def _with_gaps(array: Array) -> Array:
    if array.dtype != np.uint8:
        return array
    wide = np.zeros((array.shape[0], array.shape[1] + 30, *array.shape[2:]), np.uint8)
    part: Array = wide[:, : array.shape[1]]
    part[:] = array
    return part


def session(file: Path) -> Any:
    return onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])


def run_session(runner: Any, inputs: Mapping[str, Array]) -> Arrays:
    names = [port.name for port in runner.get_outputs()]
    return dict(zip(names, runner.run(None, dict(inputs)), strict=True))


def camera_inputs(camera: int, step: int, size: tuple[int, int]) -> Arrays:
    y, uv = reference.camera_frame(camera, step, size)
    return {"y": y, "uv": uv, "transform": reference.transform(camera, size, TURN)}


def driver_inputs(step: int) -> Arrays:
    """A wish that begins in the fourth step and is held for two."""
    desire = np.zeros((1, 8), np.float32)
    desire[0, 3] = step in (3, 4)
    return {"desire": desire, "traffic_convention": np.array([[1, 0]], np.float32)}


def error(actual: Array, expected: Array) -> float:
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


def launches(program: Program, entry: str) -> int:
    """Launches and copies of an entry."""
    (steps,) = (e.steps for e in program.entries if e.name == entry)
    assert any(isinstance(step, Launch) for step in steps)
    return len(steps)


# --- the models -----------------------------------------------------------------------------------


def test_the_models_are_the_same_every_time(models: Path, tmp_path: Path) -> None:
    build.run(sys.executable, EXAMPLE / "model.py", tmp_path, *NARROW.split())
    files = sorted(path.name for path in models.iterdir())
    assert len(files) == 7
    for name in files:
        assert (tmp_path / name).read_bytes() == (models / name).read_bytes(), name


def test_slices_are_what_the_heads_predict() -> None:
    model = reference.model
    heads = [name for _, names in model.HEADS for name in names]
    assert [*heads, "features"] == [name for name, _ in model.SLICES]
    ranges = model.slices()["outputs"].values()
    assert [end - start for start, end in ranges] == [size for _, size in model.SLICES]
    assert max(end for _, end in ranges) == model.OUTPUTS


def test_the_readme_tells_the_sizes() -> None:
    """Every port and slice is in its tables, with its size; and the bundle's command."""
    text = (EXAMPLE / "README.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", text, re.MULTILINE))
    assert rows == {name: str(size) for name, size in reference.model.SLICES}
    makefile = (EXAMPLE / "Makefile").read_text("utf-8")
    words = re.search(r"\$\(TINYEDGE\) (export .*?) \$\(EXPORT\)", makefile, re.DOTALL)
    assert words is not None
    command = words[1].replace("$(MODELS)", "models").replace("$(TARGET)", "cpu")
    command = command.replace("$(BUNDLE)", "drive-cpu.tinyedge").replace(" --force", "")
    assert " ".join(command.replace("\\\n", " ").split()) in " ".join(
        text.replace("\\\n", " ").split()
    )


# --- the warp -------------------------------------------------------------------------------------


@pytest.mark.parametrize("camera", [0, 1])
@pytest.mark.parametrize("turn", [TURN, (0.4, -0.3, 0.6)])
def test_the_warp(models: Path, camera: int, turn: tuple[float, float, float]) -> None:
    """onnxruntime on the file, beside numpy; some of what the second turn sees is out of view."""
    prefix = PREFIXES[camera]
    runner = session(models / f"{prefix}frame.onnx")
    y, uv = reference.camera_frame(camera, 5, CAMERA)
    given = {"y": y, "uv": uv, "transform": reference.transform(camera, CAMERA, turn)}
    expected = reference.warp(**given)
    actual = run_session(runner, {prefix + name: array for name, array in given.items()})
    assert expected.wrong(actual[f"{prefix}frame"]) == 0
    assert expected.sure.mean() > 0.98


def test_the_warp_of_the_same_picture() -> None:
    """One pixel to one pixel: the planes are the picture's own."""
    y, uv = reference.camera_frame(0, 0, (256, 512))
    planes = reference.warp(y, uv, np.eye(3, dtype=np.float32)).planes[0]
    phases = [y[row::2, column::2] for column in (0, 1) for row in (0, 1)]
    for plane, expected in zip(planes, [*phases, uv[:, :, 0], uv[:, :, 1]], strict=True):
        np.testing.assert_array_equal(plane, expected)


def test_the_golden_transform_leaves_no_doubt(models: Path) -> None:
    """Devices divide with small errors; places of the self-test are far from where these matter."""
    stored = np.load(models / "transform.npy")
    np.testing.assert_array_equal(stored, reference.model.test_transform(CAMERA))
    for size in (CAMERA, reference.model.CAMERA):
        transform = reference.model.test_transform(size)
        y, uv = reference.camera_frame(0, 0, size)
        assert reference.warp(y, uv, transform, margin=5e-3).sure.all()


# --- a drive --------------------------------------------------------------------------------------


def drive(runner: Runner, models: Path, size: tuple[int, int], tolerance: float) -> list[Arrays]:
    """Eight steps, each compared with numpy and onnxruntime; the states after each of them."""
    network = reference.Network(models / "drive.onnx")
    whole = session(models / "drive.onnx")
    ports = {port.name for port in whole.get_inputs()}
    kept = []
    for step in range(STEPS):
        for camera, prefix in enumerate(PREFIXES):
            given = camera_inputs(camera, step, size)
            named = {prefix + name: array for name, array in given.items()}
            planes = runner.run(named, f"{prefix}frame")[f"{prefix}frame"]
            assert reference.warp(**given).wrong(planes) == 0
            network.see(f"{prefix}frames", planes)
        given = driver_inputs(step)
        before = {name: _narrow(array) for name, array in network.states.items()}
        expected = network.run(*given.values())
        actual = runner.run(given, "main")["outputs"]
        assert error(actual, expected["outputs"]) <= tolerance, step
        assert set(before | given) == ports
        right = run_session(whole, before | given)
        assert error(actual, right["outputs"]) <= tolerance, step
        states = {name: runner.get_state(name).copy() for name in network.states}
        for name, array in network.states.items():
            if name != "features":
                np.testing.assert_array_equal(states[name], array, err_msg=name)
        assert error(states["features"], network.states["features"]) <= tolerance
        kept.append(states)
    assert network.greatest < 1000  # far from what a half holds
    assert kept[5]["desires"].sum() == 1  # a wish that is held counts once
    return kept


def _narrow(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype == np.float64 else array


def check_drive(
    runner: Runner, models: Path, size: tuple[int, int] = CAMERA, tolerance: float = 1e-4
) -> None:
    """A drive, and the same one after a reset: equal to the bit."""
    first = drive(runner, models, size, tolerance)
    runner.reset()
    assert np.array_equal(runner.get_state("frames"), np.load(models / "frames.npy"))
    assert not runner.get_state("features").any()
    second = drive(runner, models, size, tolerance)
    for a, b in zip(first, second, strict=True):
        for name, array in a.items():
            assert array.tobytes() == b[name].tobytes(), name


@pytest.mark.parametrize("target", ["cpu", *SLOW_TARGETS])
def test_a_drive_in_python(
    bundles: Bundles, models: Path, target: str, request: pytest.FixtureRequest
) -> None:
    device = request.getfixturevalue(f"{target}_device")
    with Replay(read(bundles(target)).program, device, poison=True) as replay:
        check_drive(replay, models, tolerance=TOLERANCES.get(target, 1e-4))


def test_a_drive_in_c(bundles: Bundles, models: Path) -> None:
    runner = InC(bundles("cpu"))
    check_drive(runner, models)
    runner.context.close()


@pytest.mark.parametrize("target", ["cpu", *SLOW_TARGETS])
def test_kernels(bundles: Bundles, target: str) -> None:
    """Launches and copies; the narrow network has as many as the full one."""
    program = read(bundles(target)).program
    assert launches(program, "main") <= KERNELS
    for prefix in PREFIXES:
        assert launches(program, f"{prefix}frame") <= 7
    assert all(
        state.name in ("frames", "wide_frames") or state.initial < 0 for state in program.states
    )


@pytest.mark.slow
@pytest.mark.browser
def test_goldens_in_a_browser(bundles: Bundles, browser: Browser) -> None:
    report = browser.verify(bundles("webgpu"))
    assert len(report["cases"]) == 3
    assert report["passed"]


@pytest.mark.slow
def test_in_full(tmp_path: Path) -> None:
    """The network and the cameras as documented; the program at 20 Hz, whatever it misses."""
    models = tmp_path / "models"
    bundle = make(models, tmp_path / "drive.tinyedge", "all")
    assert launches(read(bundle).program, "main") <= KERNELS
    runner = InC(bundle)
    check_drive(runner, models, reference.model.CAMERA)
    runner.context.close()
    said = host(bundle, "--frames", 20, "--threads", 2)
    assert "20 frames, " in said


# --- the program ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(bundles: Bundles, models: Path) -> Path:
    """The narrow bundle with its host program."""
    return make(models, bundles("cpu"), "host", size=NARROW)


def host(bundle: Path, *options: object, code: int = 0, **more: Any) -> str:
    """What the program says."""
    words = [str(word) for word in (bundle / "build" / "host", *options)]
    result = subprocess.run([*words, str(bundle)], capture_output=True, check=False, **more)
    said = result.stdout.decode() + result.stderr.decode()
    assert result.returncode == code, said
    return said


def slices_of(said: str) -> dict[str, list[float]]:
    """The values of the last frame's slices."""
    line = re.findall(r"^frame \d+:(.*)$", said, re.MULTILINE)[-1]
    found = re.findall(r"([a-z_]+)((?: -?[0-9.e+-]+)+)", line)
    return {name: [float(word) for word in values.split()] for name, values in found}


def expected_slices(models: Path, frames: int) -> dict[str, Sequence[float]]:
    network = reference.Network(models / "drive.onnx")
    desire = np.eye(8)[None, 3]
    for step in range(frames):
        for camera, prefix in enumerate(PREFIXES):
            planes = reference.warp(**camera_inputs(camera, step, CAMERA)).planes
            network.see(f"{prefix}frames", planes)
        row = network.run(desire, np.array([[1, 0]]))["outputs"][0]
    ranges = reference.model.slices()["outputs"]
    return {name: row[slice(*ranges[name])][:6] for name in ("pose", "lead_prob", "desire_state")}


OPTIONS = ("--turn", ",".join(map(str, TURN)), "--desire", 3)


def test_the_program_drives(built: Path, models: Path) -> None:
    """Forty frames, fast; what it prints of the twelfth is what numpy computes."""
    said = host(built, "--frames", 40, "--hz", 1000, "--threads", 2, *OPTIONS)
    assert re.search(r"^40 frames, \d+ missed deadlines at 1000 Hz$", said, re.MULTILINE)
    for name in ("preprocessing", "model", "both"):
        found = re.search(rf"^{name} +p50 +(\S+) ms +p99 +(\S+) ms +max +(\S+) ms$", said, re.M)
        assert found is not None
        p50, p99, most = map(float, found.groups())
        assert 0 < p50 <= p99 <= most
    given = slices_of(host(built, "--frames", 12, "--hz", 1000, *OPTIONS))
    for name, values in expected_slices(models, 12).items():
        np.testing.assert_allclose(given[name], values, rtol=0, atol=2e-3)


def test_the_program_keeps_time(built: Path) -> None:
    """An absolute clock: the whole takes frames / rate, not that and what the frames took."""
    began = time.monotonic()
    host(built, "--frames", 11, "--hz", 2, "--stride", 1024, "--realtime")
    assert 5 <= time.monotonic() - began


def test_the_program_reads_frames(built: Path, tmp_path: Path) -> None:
    """Frames in a file, then the same through a pipe, give what the generated ones give."""
    raw = b"".join(
        plane.tobytes()
        for step in range(3)
        for camera in (0, 1)
        for plane in reference.camera_frame(camera, step, CAMERA)
    )
    (tmp_path / "frames.nv12").write_bytes(raw)
    options = ("--hz", 1000, *OPTIONS)
    expected = slices_of(host(built, "--frames", 3, *options))
    said = host(built, "--frames", 0, "--raw", tmp_path / "frames.nv12", *options)
    assert "3 frames" in said
    assert slices_of(said) == expected
    said = host(built, "--frames", 0, "--raw", "-", "--stride", 600, *options, input=raw + b"short")
    assert "3 frames" in said
    assert slices_of(said) == expected


def test_the_program_stops_when_told(built: Path) -> None:
    words = [str(built / "build" / "host"), str(built), "--frames", "0", "--hz", "10"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith("frame 0:")
        running.send_signal(signal.SIGINT)
        said = running.stdout.read()
        assert running.wait(timeout=20) == 0
    assert re.search(r"^\d+ frames, \d+ missed", said, re.MULTILINE)


def test_the_program_refuses(built: Path, tmp_path: Path) -> None:
    for words in (["--bogus"], ["--hz"], ["--hz", "fast"], ["--desire", "8"], ["--turn", "1"]):
        host(built, *words, code=2)
    assert "--hz: it takes a number, 0.1 to 10000, not 0" in host(built, "--hz", 0, code=2)
    host(built, "--raw", tmp_path / "missing", code=2)
    assert "directory" in host(built, "--raw", tmp_path, code=2)
    (tmp_path / "short").write_bytes(bytes(1000))
    assert "no whole frame" in host(built, "--raw", tmp_path / "short", code=2)
    host(built, "--stride", "100", code=2)
    words = [str(built / "build" / "host"), str(tmp_path)]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert result.returncode == 3
    assert "bundle.manifest.missing" in result.stderr
    with open("/dev/full", "w") as full:
        words = [str(built / "build" / "host"), str(built), "--frames", "1"]
        assert subprocess.run(words, stdout=full, check=False).returncode == 2


def test_the_program_allocates_nothing_while_it_drives(built: Path, tmp_path: Path) -> None:
    """As many allocations for many frames as for few."""
    library = tmp_path / "count.so"
    build.run(
        build.CC, "-O1", "-fPIC", "-shared", "-o", library, Path(__file__).with_name("count.c")
    )
    counted = []
    for frames in (3, 30):
        said = host(built, "--frames", frames, "--hz", 1000, env={"LD_PRELOAD": str(library)})
        found = re.search(r"^(\d+) allocations$", said, re.MULTILINE)
        assert found is not None
        counted.append(int(found[1]))
    assert 0 < counted[0] == counted[1]


def copied(bundle: Path, place: Path) -> Path:
    """A bundle of which nothing is built."""
    shutil.copytree(bundle, place, ignore=shutil.ignore_patterns("build"))
    return place


@pytest.mark.slow
@pytest.mark.parametrize("compiler", build.COMPILERS)
def test_the_program_under_sanitizers(
    bundles: Bundles, models: Path, tmp_path: Path, compiler: str
) -> None:
    bundle = copied(bundles("cpu"), tmp_path / "bundle")
    sanitize = "-fsanitize=address,undefined"
    flags = f"-g -O1 -Werror {sanitize} -fno-sanitize-recover=all"
    more = (f"CC={compiler}", f"LDFLAGS={sanitize}", f"CFLAGS={flags}")
    make(models, bundle, "host", *more, size=NARROW)
    host(bundle, "--frames", 4, "--hz", 1000, "--threads", 3, "--stride", 483)


@pytest.mark.slow
@needs_arm64
def test_the_program_on_arm64(bundles: Bundles, models: Path, tmp_path: Path) -> None:
    bundle = copied(bundles("cpu"), tmp_path / "bundle")
    make(models, bundle, "host", f"CC={ARM64}", "LDFLAGS=-static", size=NARROW)
    words = (bundle / "build" / "host", bundle, "--frames", 3, "--hz", 1000, *OPTIONS)
    given = slices_of(build.run(EMULATOR, *words))
    for name, values in expected_slices(models, 3).items():
        np.testing.assert_allclose(given[name], values, rtol=0, atol=2e-3)


@pytest.mark.slow
def test_the_program_without_a_gpu(bundles: Bundles, models: Path) -> None:
    """It builds without CUDA, and says what is missing where there is no driver."""
    bundle = make(models, bundles("cuda"), "host", target="cuda", size=NARROW)
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        assert "device.missing" in host(bundle, code=3)
    else:
        host(bundle, "--frames", 4, "--hz", 1000)


@pytest.mark.slow
def test_the_program_on_opencl(bundles: Bundles, models: Path, tmp_path: Path) -> None:
    """The same program for another backend."""
    bundle = make(models, bundles("qcom"), "host", target="qcom", size=NARROW)
    options = ("--frames", 12, "--hz", 1000, "--device", "0", "--cache", tmp_path)
    given = slices_of(host(bundle, *options, *OPTIONS))
    for name, values in expected_slices(models, 12).items():
        np.testing.assert_allclose(given[name], values, rtol=0, atol=0.1)
