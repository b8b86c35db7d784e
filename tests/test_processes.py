"""Models in several threads, and in processes forked from one that loaded them."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyedge
from tinyedge import RunError, Tensor

ROOT = Path(__file__).resolve().parents[1]
THREADS = 6
DRIVERS = ("webgpu", "qcom")  # targets whose device belongs to the process that opened it
TARGETS = ("cpu", *DRIVERS)

WEIGHTS = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)


def layers(number: int) -> Any:
    """A function with so much work that the cpu divides it among threads; of its own kernels."""

    def model(x: Tensor) -> Tensor:
        for layer in range(1 + number % 3):
            x = (x @ (WEIGHTS * (1 + number + layer))).relu() * 0.01 + number
        return x.softmax(-1)

    return model


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with bundles NAME0, NAME1, .. of each target."""
    folder = tmp_path_factory.mktemp("bundles")
    for target in TARGETS:
        for number in range(THREADS):
            tinyedge.export_function(
                layers(number),
                {"x": np.zeros((16, 256), np.float32)},
                target=target,
                out=folder / f"{target}{number}",
                golden=False,
            )
    return folder


@pytest.fixture
def accumulator(tmp_path: Path) -> Path:
    """A model of a state that adds its input, ones, at each run; exported for the cpu."""
    return tinyedge.export_function(
        lambda x, total: {"sum": total + x},
        {"x": np.zeros(4, np.float32), "total": np.zeros(4, np.float32)},
        target="cpu",
        out=tmp_path / "accumulator",
        states={"total": "sum:keep"},
        golden=False,
    )


def python(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own; its standard output holds what it found."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def together(work: Any, count: int = THREADS) -> list[BaseException]:
    """Run work(0), work(1), .. in threads; what they raised."""
    raised: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


# --- threads -----------------------------------------------------------------------------------

LOAD = """
import sys, threading
import numpy as np
import tinyedge

folder, target = sys.argv[1:]
x, failed, start = np.ones((16, 256), np.float32), [], threading.Barrier(6)

def work(number):
    try:
        start.wait()
        for _ in range(4):
            with tinyedge.load(f"{folder}/{target}{number}") as model:
                assert abs(model.run({"x": x})["output"].sum() - 16) < 1e-3
    except BaseException as error:
        failed.append(error)

threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
"""


def load_in_threads(bundles: Path, target: str, processes: int) -> None:
    """Each thread loads a model of its own, four times; rows of a softmax sum to 1."""
    ends = [python(LOAD, bundles, target) for _ in range(processes)]
    assert [end.stderr[-2000:] for end in ends if end.returncode] == []


@pytest.mark.parametrize("target", TARGETS)
def test_loads_in_several_threads(bundles: Path, target: str) -> None:
    load_in_threads(bundles, target, 4 if target == "webgpu" else 1)


@pytest.mark.slow
def test_loads_in_several_threads_of_a_hundred_processes(bundles: Path) -> None:
    load_in_threads(bundles, "webgpu", 100)


@pytest.mark.parametrize("target", TARGETS)
def test_threads_share_a_model(bundles: Path, target: str) -> None:
    """Each run gives the bits that it gives alone."""
    inputs = np.random.default_rng(1).normal(size=(THREADS, 16, 256)).astype(np.float32)
    with tinyedge.load(bundles / f"{target}2") as model:
        alone = [model.run({"x": x})["output"] for x in inputs]

        def work(number: int) -> None:
            for turn in range(30):
                if turn % 10 == 9:
                    model.profile({"x": inputs[number]})
                got = model.run({"x": inputs[number]})["output"]
                np.testing.assert_array_equal(got, alone[number])

        assert together(work) == []


def test_threads_share_a_state(accumulator: Path) -> None:
    """No run is lost: 6 threads of 50 runs add 300; a reset or a new value is whole."""
    ones = np.ones(4, np.float32)
    with tinyedge.load(accumulator) as model:
        assert together(lambda _: [model.run({"x": ones}) for _ in range(50)]) == []
        np.testing.assert_array_equal(model.get_state("total"), np.full(4, 300))

        def work(number: int) -> None:
            for _ in range(50):
                if number % 2:
                    model.set_state("total", np.full(4, number, np.float32))
                    model.reset()
                else:
                    model.run({"x": ones})
                value = model.get_state("total")
                np.testing.assert_array_equal(value, np.full(4, value[0]))

        assert together(work) == []


@pytest.mark.parametrize("target", TARGETS)
def test_a_model_is_closed_while_threads_run_it(bundles: Path, target: str) -> None:
    """The run in progress ends with its value, later ones are refused."""
    x = np.ones((16, 256), np.float32)
    model = tinyedge.load(bundles / f"{target}0")
    alone = model.run({"x": x})["output"]
    running = threading.Barrier(THREADS + 1)

    def work(number: int) -> None:
        running.wait()
        if number == THREADS:
            model.close()
            return
        while True:
            np.testing.assert_array_equal(model.run({"x": x})["output"], alone)

    raised = together(work, THREADS + 1)
    assert [getattr(error, "id", error) for error in raised] == ["run.disposed"] * THREADS
    model.close()


def test_a_call_within_a_call_is_refused(accumulator: Path) -> None:
    """By what converts an input, and by a signal's handler; the outer call is not disturbed."""
    ones = np.ones(4, np.float32)
    with tinyedge.load(accumulator) as model:
        seen: list[RunError] = []

        def again(*_: object) -> None:
            for call in (lambda: model.run({"x": ones}), model.reset, model.close):
                with pytest.raises(RunError) as caught:
                    call()
                seen.append(caught.value)

        class Lazy:
            def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
                again()
                signal.raise_signal(signal.SIGUSR1)
                return ones

        before = signal.signal(signal.SIGUSR1, again)
        try:
            result = model.run({"x": Lazy()})
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert {error.id for error in seen} == {"run.busy"} and len(seen) >= 6
        np.testing.assert_array_equal(result["sum"], ones)


# --- processes ---------------------------------------------------------------------------------

FORK = """
import faulthandler, os, sys, threading
import numpy as np
import tinyedge
from tinyedge.model import open_device
from tinyedge.export.bundle.reading import read

path, what = sys.argv[1:]
x = np.ones((16, 256), np.float32)

def call(work):
    try:
        result = work()
        print("value" if result is None else result["output"].tobytes().hex()[:64], flush=True)
    except tinyedge.TinyedgeError as error:
        print(error.id, error.next != "", flush=True)

def anew():
    with tinyedge.load(path) as model:
        return model.run({"x": x})

if what == "devices":
    open_device(read(path).program).close()
else:
    model = tinyedge.load(path)
    alone = model.run({"x": x})["output"].tobytes().hex()[:64]
    print(alone, flush=True)
if what == "middle":
    inside, done = threading.Event(), threading.Event()
    record = model._replay.run
    model._replay.run = lambda *_: (inside.set(), done.wait(), record({"x": x}))[-1]
    thread = threading.Thread(target=model.run, args=({"x": x},))
    thread.start()
    inside.wait()
child = os.fork()
if child == 0:
    faulthandler.dump_traceback_later(40, exit=True)
    if what in ("used", "middle"):
        call(lambda: model.run({"x": x}))
    if what == "used":
        call(lambda: model.profile({"x": x}) and None)
        call(model.reset)
        model.close()
    if what in ("anew", "devices"):
        call(anew)
    sys.exit(0)  # as a server's workers end: what the parent opened is torn down
_, status = os.waitpid(child, 0)
print("status", status, flush=True)
if what == "middle":
    done.set()
    thread.join()
if what != "devices":
    call(lambda: model.run({"x": x}))
    model.close()
"""


@pytest.mark.parametrize("target", DRIVERS)
@pytest.mark.parametrize(
    ("what", "refused"), [("used", 3), ("anew", 1), ("left", 0), ("devices", 1)]
)
def test_a_driver_does_not_survive_a_fork(
    bundles: Path, target: str, what: str, refused: int
) -> None:
    """The child is told so, for the model and for a new one, and ends; the parent goes on."""
    end = python(FORK, bundles / f"{target}1", what)
    lines = end.stdout.split("\n")[:-1]
    assert end.returncode == 0, end.stderr
    if what != "devices":
        assert lines.pop() == lines.pop(0)
    assert lines == [*["device.fork True"] * refused, "status 0"], end.stderr


@pytest.mark.parametrize("what", ["used", "anew"])
def test_the_cpu_survives_a_fork(bundles: Path, what: str) -> None:
    """The child has its own copy of the model's memory, and threads of its own."""
    end = python(FORK, bundles / "cpu1", what)
    assert end.returncode == 0, end.stderr
    lines = end.stdout.split("\n")[:-1]
    alone = lines[0]
    assert lines == [alone, alone, *["value"] * (2 * (what == "used")), "status 0", alone]


def test_a_fork_in_the_middle_of_a_run(bundles: Path) -> None:
    """The child's copy of the model is half computed, and its lock held by no thread there."""
    end = python(FORK, bundles / "cpu1", "middle")
    assert end.returncode == 0, end.stderr
    alone, child, *after = end.stdout.split("\n")[:-1]
    assert [child, *after] == ["device.fork True", "status 0", alone]


POOL = """
import multiprocessing, sys
import numpy as np
import tinyedge

def work(number):
    try:
        return float(model.run({"x": np.full((16, 256), number, np.float32)})["output"].sum())
    except tinyedge.DeviceError as error:
        return error.id

model = tinyedge.load(sys.argv[1])
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(work, range(4)))
"""


def test_a_pool_of_forked_processes(bundles: Path) -> None:
    """multiprocessing's workers give right values or the error: rows of a softmax sum to 1."""
    end = python(POOL, bundles / "cpu0")
    assert np.allclose(eval(end.stdout), 16), end.stderr
    end = python(POOL, bundles / "webgpu0")
    assert eval(end.stdout) == ["device.fork"] * 4, end.stderr


# --- files that change -------------------------------------------------------------------------


CHANGE = """
import os, sys
import numpy as np
import tinyedge
from tinyedge.export.bundle.reading import read

path, how = sys.argv[1:]
model = tinyedge.load(path)
bundle = read(path)
cases = bundle.goldens()
for name in os.listdir(path):
    file = os.path.join(path, name)
    size = os.path.getsize(file) if os.path.isfile(file) else 0
    if how == "overwritten" and size:
        with open(file, "r+b") as opened:
            opened.write(b"\\x41" * size)
    elif how == "cut" and size:
        os.truncate(file, 0)
ones = np.ones(4, np.float32)
runs = [model.run({"x": ones})["sum"].tolist() for _ in range(2)]
model.reset()
print(model.get_state("total").tolist(), runs, model.run({"x": ones})["sum"].tolist())
print(bundle.program.weights[0].data.view(np.float32).tolist(), cases[0].outputs[0].data.shape)
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("how", ["overwritten", "cut"])
def test_a_loaded_model_does_not_look_at_its_files_again(
    tmp_path: Path, target: str, how: str
) -> None:
    """A state whose first value is 5, 6, 7, 8 adds ones, and starts again at that value."""
    out = tinyedge.export_function(
        lambda x, total: {"sum": total + x},
        {"x": np.zeros(4, np.float32), "total": np.zeros(4, np.float32)},
        target=target,
        precision="fp32",
        out=tmp_path / "model",
        states={"total": "sum:keep"},
        state_init={"total": np.array([5, 6, 7, 8], np.float32)},
    )
    end = python(CHANGE, out, how)
    assert end.returncode == 0, end.stderr
    first, second = "[6.0, 7.0, 8.0, 9.0]", "[7.0, 8.0, 9.0, 10.0]"
    assert end.stdout == (
        f"[5.0, 6.0, 7.0, 8.0] [{first}, {second}] {first}\n[5.0, 6.0, 7.0, 8.0] (4,)\n"
    )
