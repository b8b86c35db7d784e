"""The command line, on hand-written bundles: what it prints, its exit codes, its errors."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests import models
from tests.cuda.device import open as a_cuda_device
from tests.cuda.shim import Shim
from tests.exporters.networks import Network
from tests.process_replay import corpus
from tests.targets import programs
from tinyedge import cli
from tinyedge.cli.output import bytes_of, plain, seconds_of
from tinyedge.core.errors import DeviceError, InputError, InternalError, RunError
from tinyedge.core.program.device import Device
from tinyedge.core.program.program import Program
from tinyedge.core.program.replay import Replay
from tinyedge.export.bundle import golden
from tinyedge.export.package.package import write_bundle
from tinyedge.listing import Listing, listing
from tinyedge.model import TARGETS
from tinyedge.targets.cpu import device as cpu
from tinyedge.targets.cuda import device as cuda
from tinyedge.targets.webgpu import device as webgpu

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tinyedge(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Command:
    """Runs the command line in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = cli.execute([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run


def bundle(tmp_path: Path, program: Program, device: Device, name: str = "model.tinyedge") -> Path:
    with Replay(program, device) as replay:
        goldens = [golden.make(program, replay.run, made="test")]
    return write_bundle(program, tmp_path / name, goldens=goldens)


@pytest.fixture
def addition(tmp_path: Path, cpu_device: cpu.CpuDevice) -> Path:
    return bundle(tmp_path, programs.addition("cpu"), cpu_device)


def test_run_writes_outputs(tinyedge: Command, addition: Path, tmp_path: Path) -> None:
    np.save("a=1.npy", np.ones((4, 64), np.float32))
    np.save("b.npy", np.zeros((4, 64), np.float32))
    code, out, err = tinyedge(
        "run", addition, "--input", "a=a=1.npy", "--input", "b:0=b.npy", "-o", "results"
    )
    assert (code, err) == (0, "")
    assert (
        "[4, 64]" in out and "\nfirst run " in out and "s (with what is prepared once) on " in out
    )
    expected = 1 + np.arange(256, dtype=np.float32).reshape(4, 64)
    np.testing.assert_array_equal(np.load("results/c.npy"), expected)
    np.testing.assert_array_equal(np.load("results/tail.npy"), expected[3:])


def test_run_as_json(tinyedge: Command, addition: Path) -> None:
    code, out, _ = tinyedge("run", addition, "--random", "--repeat", "3", "--json")
    assert code == 0
    answer = json.loads(out)
    assert answer["outputs"]["half"] == {
        "dtype": "float32",
        "shape": [2, 64],
        "file": str(Path("outputs/half.npy")),
    }
    assert len(answer["seconds"]) == 3


def test_outputs_with_hostile_names_stay_in_their_folder(
    tinyedge: Command, tmp_path: Path, cpu_device: cpu.CpuDevice
) -> None:
    program = programs.addition("cpu")
    names = ("../../escape", "a\u202eb/../c[31m")
    outputs = tuple(
        replace(port, name=name) for port, name in zip(program.outputs, names, strict=True)
    )
    entry = replace(program.entries[0], outputs=names)
    program = replace(program, outputs=outputs, entries=(entry,))
    path = bundle(tmp_path, program, cpu_device)
    code, out, _ = tinyedge("run", path, "--random")
    assert code == 0
    assert "\u202e" not in out
    written = sorted(file.name for file in Path("outputs").iterdir())
    assert written == ["_.._escape.npy", "a_b_.._c_31m.npy", "tail.npy"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--input", "a=none.npy"], 1, "there is no such file"),
        (["--input", "a=text.npy"], 1, "export with --image a=WORDS"),
        (["--input", "a=pickle.npy"], 1, "it holds Python objects"),
        (["--input", "z=wrong.npy"], 1, "no such input"),
        (["--input", "a=wrong.npy"], 1, "--input 'b:0=FILE.npy', or --random"),
        (["--input", "a=wrong.npy", "--random"], 1, "float64"),
        (["--input", "a"], 2, "'a' is not NAME=FILE.npy"),
        (["--input", "a=wrong.npy", "--input", "a=wrong.npy"], 2, "given twice"),
        (["--random", "--entry", "other"], 1, "'main'"),
        (["--random", "--dim", "N=x"], 2, "not a number"),
        (["--random", "--device", "tpu"], 3, "one device"),
    ],
)
def test_wrong_arguments_of_run(
    tinyedge: Command, addition: Path, arguments: list[str], code: int, message: str
) -> None:
    np.save("wrong.npy", np.ones(3))
    Path("text.npy").write_text("hello")
    np.save("pickle.npy", np.array([{}], object), allow_pickle=True)
    result, _, err = tinyedge("run", addition, *arguments)
    assert result == code
    assert message in err
    assert "Traceback" not in err


def test_verify(tinyedge: Command, addition: Path) -> None:
    code, out, err = tinyedge("verify", addition)
    assert (code, err) == (0, "")
    assert "agrees" in out and "DIFFERS" not in out
    code, out, _ = tinyedge("verify", addition, "--json")
    assert json.loads(out)["agrees"] is True


@pytest.mark.browser
@pytest.mark.parametrize("make", [programs.addition, programs.counter, programs.symbolic])
def test_verify_in_a_browser(
    tinyedge: Command,
    tmp_path: Path,
    webgpu_device: webgpu.WebgpuDevice,
    make: Callable[[str], Program],
) -> None:
    """States too: the page runs a case's steps one after the other."""
    program = make("webgpu")
    with Replay(program, webgpu_device) as replay:
        steps = 3 if program.states else 1
        goldens = [golden.make(program, replay.run, made="test", steps=steps)]
    path = write_bundle(program, tmp_path / "model.tinyedge", goldens=goldens)
    for where in ((), ("--browser",)):
        # In a thread of its own: playwright has one driver a thread, and other tests may keep one.
        with ThreadPoolExecutor(1) as thread:
            code, out, err = thread.submit(tinyedge, "verify", path, *where, "--json").result()
        answer = json.loads(out)
        assert (code, answer["agrees"]) == (0, True), err
        assert len(answer["cases"]) == 1


def test_verify_finds_a_mismatch(
    tinyedge: Command, tmp_path: Path, cpu_device: cpu.CpuDevice
) -> None:
    program = programs.addition("cpu")
    with Replay(program, cpu_device) as replay:
        goldens = [golden.make(program, replay.run, made="test")]
    kernel = replace(
        program.kernels[0], source=program.kernels[0].source.replace("b0[i] +", "b0[i] -")
    )
    path = write_bundle(
        replace(program, kernels=(kernel,)), tmp_path / "wrong.tinyedge", goldens=goldens
    )
    code, out, err = tinyedge("verify", path)
    assert (code, err) == (1, "")
    assert "DIFFERS" in out


def test_a_damaged_bundle(tinyedge: Command, addition: Path) -> None:
    kernels = addition / "kernels.c"
    kernels.write_text(kernels.read_text().replace("b0[i]", "b1[i]"))
    for command in ("verify", "run", "inspect", "bench"):
        code, _, err = tinyedge(command, addition)
        assert code == 1
        assert "bundle.file.hash" in err and "Traceback" not in err


def test_inspect_a_bundle(tinyedge: Command, addition: Path) -> None:
    code, out, err = tinyedge("inspect", addition)
    assert (code, err) == (0, "")
    assert "input    b:0 float32 [4, 64]" in out
    assert "tail: 3..4 of axis 0" in out
    assert "launches 1 of 1 kernel\n" in out
    code, out, _ = tinyedge("inspect", addition, "--json")
    facts = json.loads(out)
    assert facts["kernels"] == [{"name": "add", "launches": 1, "workgroup": [64, 1, 1]}]
    assert facts["peak_bytes"] == programs.ARENA + 1024
    code, out, _ = tinyedge("inspect", addition, "--kernel", "0")
    assert "void add(" in out and "#include <stdint.h>" not in out  # what all kernels share
    assert tinyedge("inspect", addition, "--kernel", "1")[0] == 2


def test_open_sizes(tinyedge: Command, tmp_path: Path, cpu_device: cpu.CpuDevice) -> None:
    path = bundle(tmp_path, programs.symbolic("cpu"), cpu_device)
    _, out, _ = tinyedge("inspect", path)
    assert "output   y float32 [M * N]" in out
    assert "size     M: 4..16 in steps of 4" in out
    code, out, _ = tinyedge("run", path, "--random", "--dim", "N=3", "--dim", "M=8")
    assert code == 0 and "[24]" in out
    command = ("bench", path, "--runs", "1", "--dim")
    for size, said in (
        (3, "x [3, 16], bias [16]; no GFLOP/s"),
        (8, "x [8, 16], bias [16]\n"),
    ):
        assert f"inputs       {said}" in tinyedge(*command, f"N={size}")[1]
    answer = json.loads(tinyedge(*command, "N=3", "--json")[1])
    assert answer["inputs"] == {"x": [3, 16], "bias": [16]}
    code, _, err = tinyedge("run", path, "--random", "--dim", "N=9")
    assert code == 1 and "run.shape" in err


def test_bench(tinyedge: Command, addition: Path) -> None:
    code, out, _ = tinyedge("bench", addition, "--runs", "3")
    assert code == 0
    assert "Add_0" in out and "median run" in out
    answer = json.loads(tinyedge("bench", addition, "--runs", "2", "--json")[1])
    assert [kernel["nodes"] for kernel in answer["kernels"]] == [["Add_0"]]
    assert len(answer["run_seconds"]) == 2


def test_devices(tinyedge: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = tinyedge("devices")
    assert code == 0
    assert {"cpu", "qcom", "webgpu"} <= set(out.split())
    away = {target: Listing(because="it is away.", next="fetch it") for target in TARGETS}
    monkeypatch.setattr("tinyedge.cli.devices.listed", lambda targets: away)
    code, out, _ = tinyedge("devices")
    lines = [f"{target}: none, it is away; fetch it" for target in TARGETS]
    assert (code, out.splitlines()) == (3, lines)
    assert tinyedge("devices", "--json")[:2] == (3, "[]\n")


def test_a_broken_driver_hides_no_other_device(
    tinyedge: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It raises, crashes, or ends its process, when its package is imported."""
    broken = {"pyopencl": "1 / 0", "wgpu": "import os; os.kill(os.getpid(), 11)", "cuda": "exit(7)"}
    for name, text in broken.items():
        tmp_path.joinpath(f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    code, out, _ = tinyedge("devices", "--json")
    assert (code, [each["target"] for each in json.loads(out)]) == (0, ["cpu"])
    said = [line for line in tinyedge("devices")[1].splitlines() if ": none, " in line]
    again = "install the target's driver, or its package for Python, again"
    assert said == [
        f"webgpu: none, its driver ends the process by signal SIGSEGV; {again}",
        "qcom: none, the package pyopencl cannot be imported: ZeroDivisionError: division by zero; "
        "install it again (pip install --force-reinstall pyopencl), or the driver it loads",
        f"cuda: none, its driver ends the process with status 7; {again}",
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RunError("x", "y", id="run.z"), 1),
        (DeviceError("x", "y", id="device.z"), 3),
        (InternalError("x", "y", id="z"), 4),
        (RuntimeError("boom"), 4),
        (OSError(28, "No space left on device"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(
    tinyedge: Command, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(targets: object) -> None:
        raise error

    monkeypatch.setattr("tinyedge.cli.devices.listed", fail)
    result, out, err = tinyedge("devices")
    assert (result, out) == (code, "")
    assert "Traceback" not in err and err.strip()
    for debug in (("--debug", "devices"), ("devices", "--debug")):
        result, _, err = tinyedge(*debug)
        assert result == code
        assert ("Traceback" in err) == (code != 130)


def test_usage_errors(tinyedge: Command) -> None:
    assert tinyedge("frobnicate")[0] == 2
    assert tinyedge("run")[0] == 2
    assert tinyedge("export", "model.onnx", "--dim", "N")[0] == 2
    for profiles in ("", "altivec", "default,default"):
        assert tinyedge("export", "model.onnx", "-t", "cpu", "--profile", profiles)[0] == 2
    for profile, said in (
        ("", "choose of"),
        ("sse,avx512", "give one profile"),
        ("avx2", "'avx2': choose of default (avx2, fma, f16c), sse, avx512, neon"),
    ):
        code, _, err = tinyedge("explain", "model.onnx", "-t", "cpu", "--profile", profile)
        assert code == 2 and said in err
    assert tinyedge("export", "model.onnx", "--bound", "loop=" + "9" * 5000)[0] == 2
    code, _, err = tinyedge("export", "model.onnx", "--target", "abacus")
    assert code == 2 and "webgpu" in err
    assert tinyedge("verify", "nothing.tinyedge")[0] == 1
    assert tinyedge("inspect", "nothing.tinyedge")[0] == 1


def test_help_documents_the_exit_codes(tinyedge: Command) -> None:
    code, out, _ = tinyedge("--help")
    assert code == 0
    assert "3    no device" in out
    for command in cli.COMMANDS:
        code, out, _ = tinyedge(command, "--help")
        assert code == 0 and "--debug" in out


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from tinyedge import cli; cli.execute(['--help']);"
        "print(sorted({'onnx', 'wgpu', 'numpy', 'rich'} & set(sys.modules)), file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert "onnx" not in result.stderr and "wgpu" not in result.stderr


def test_the_module_runs(addition: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tinyedge", "inspect", str(addition)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0 and "bundle for cpu" in result.stdout


def test_a_closed_pipe_is_no_error(addition: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [sys.executable, "-m", "tinyedge", "inspect", str(addition)],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    _, err = process.communicate()
    assert err == ""


@pytest.mark.parametrize("module", ["tinyedge.cli", "numpy", "tinyedge.cli.devices"])
def test_an_interrupt_while_modules_are_imported(module: str) -> None:
    script = f"""
import sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from tinyedge.__main__ import main
main()
"""
    command = [sys.executable, "-c", script, "devices"]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "\ninterrupted\n")


def test_little_is_imported_before_interrupts_are_caught() -> None:
    script = """
import json, sys
import importlib
before = set(sys.modules)
import tinyedge.__main__
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    command = [sys.executable, "-S", "-c", script]
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    result = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    names = ["tinyedge", "tinyedge.__main__", "tinyedge.core", "tinyedge.core.values"]
    assert [name for name in json.loads(result.stdout) if name != "__future__"] == names


def test_serve_until_interrupted(tmp_path: Path) -> None:
    path = write_bundle(programs.addition("webgpu"), tmp_path / "model.tinyedge")
    process = subprocess.Popen(
        [sys.executable, "-m", "tinyedge", "serve", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/model\.tinyedge/", line)
        assert found, line
        with urllib.request.urlopen(found[0] + "manifest.json") as answer:
            assert json.load(answer)["target"] == "webgpu"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (0, "")
    finally:
        process.kill()
        process.communicate()


def test_words() -> None:
    assert plain("a\x1b[31m\u202e\n") == "a\\x1b[31m\\u202e\n"
    assert [bytes_of(n) for n in (0, 1023, 1536, 5 * 2**20)] == [
        "0 bytes",
        "1023 bytes",
        "1.5 KiB",
        "5.0 MiB",
    ]
    assert [seconds_of(t) for t in (2, 0.0032, 4e-6)] == ["2.00 s", "3.20 ms", "4.0 us"]


def test_progress_measures_stages() -> None:
    from tinyedge.cli.output import Stages

    stages = Stages(None)
    stages.report("one", 0, 2)
    time.sleep(0.01)
    stages.report("one", 1, 2)
    stages.report("two")
    stages.finish()
    assert list(stages.times) == ["one", "two"]
    assert stages.times["one"] >= 0.01


def test_export_passes_its_options_on(
    tinyedge: Command, addition: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tinyedge as package

    seen: dict[str, object] = {}

    def export_onnx(
        model: Path,
        *,
        progress: Callable[..., None],
        warn: Callable[[str], None],
        **options: object,
    ) -> None:
        seen.update(options, model=model)
        warn("a size is taken as 1")
        progress("import")
        progress("kernels", 1, 2)

    monkeypatch.setattr(package, "export_onnx", export_onnx, raising=False)
    options = ("--dim", "H=32..64:32", "--dim", "a=b[0]=2", "--precision", "fp16", "--no-optimize")
    options = (*options, "--bound", "grow=64", "--outputs", "a,b", "--outputs", "c")
    options = (*options, "--limit", "nodes=7")
    options += ("--constant", "rate=16000", "--constant", "a=b=-0.5", "--constant", "on=true")
    Path("parts.json").write_text('{"y": {"low": [0, 4]}}')
    options += ("--state", "h=h_out", "--state", "q=q_out:shift@1:keep", "--state-init", "h=h.npy")
    options += ("--entry", "frame=f.onnx", "--slice", "y[0]:high=4..8", "--slices", "parts.json")
    options += ("--golden-input", "x=x.npy", "--golden-steps", "3", "--name", "net")
    options += (
        "--train",
        "head.*",
        "--loss",
        "mse_loss:y",
        "--optimizer",
        "sgd:lr=1",
        "--batch",
        "4",
        "--image",
        "x=cover,imagenet",
        "--labels",
        "names.txt",
        "--debug-goldens",
        "4096",
    )
    code, out, err = tinyedge("export", "m.onnx", "-o", addition, *options, "--timing")
    assert (code, err) == (0, "note: a size is taken as 1\n")
    assert seen == {
        "model": Path("m.onnx"),
        "target": "webgpu",
        "out": addition,
        "dims": {"H": "32..64:32", "a=b[0]": "2"},
        "bounds": {"grow": 64},
        "constants": {"rate": 16000, "a=b": -0.5, "on": True},
        "limits": {"nodes": 7},
        "outputs": ("a,b", "c"),
        "precision": "fp16",
        "arch": None,
        "fallback": None,
        "optimize": False,
        "winograd": True,
        "states": {"h": "h_out", "q": "q_out:shift@1:keep"},
        "state_init": {"h": "h.npy"},
        "entries": {"frame": "f.onnx"},
        "slices": {"y": {"low": [0, 4]}, "y[0]": {"high": "4..8"}},
        "train": ("head.*",),
        "loss": ("mse_loss:y",),
        "optimizer": "sgd:lr=1",
        "batch": 4,
        "loss_scale": None,
        "images": {"x": "cover,imagenet"},
        "labels": "names.txt",
        "debug_goldens": 4096,
        "golden_inputs": {"x": "x.npy"},
        "golden_steps": 3,
        "name": "net",
        "force": False,
    }
    assert "1 kernel, 1 launch, " in out
    stages = [line.split()[0] for line in out.splitlines() if line]
    assert stages[1:4] == ["import", "kernels", "total"]


def test_export_chooses_a_name(tinyedge: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    import tinyedge as package

    def export_onnx(model: Path, **options: object) -> None:
        raise RunError(str(options["out"]), "enough", id="test")

    monkeypatch.setattr(package, "export_onnx", export_onnx, raising=False)
    code, _, err = tinyedge("export", "folder/some.model.onnx", "--golden-input", "x=y.npy")
    assert code == 1
    assert "some.model.tinyedge [test]" in err


@pytest.mark.parametrize("model", ["", ".", "..", "/"])
def test_a_folder_where_a_model_belongs(tinyedge: Command, model: str) -> None:
    import tinyedge as package

    code, _, err = tinyedge("export", model)
    assert code == 1 and "InputError" in err and "[input.file]" in err
    with pytest.raises(InputError) as caught:
        package.export_onnx(model)
    assert caught.value.id == "input.file"


def _memory(tmp_path: Path) -> None:
    """total.onnx: y = the sum of a queue, and its newest entry; push.onnx: an entry for it."""
    import onnx

    from tests.export.hostile import info, ints, model, node

    queue = info("queue", [4, 3])
    summed = [node("ReduceSum", ["queue", "axis"], ["y"], keepdims=0)]
    onnx.save(model(summed, inputs=[queue], weights=[ints("axis", [0])]), "total.onnx")
    pushed = [node("Mul", ["x", "x"], ["new"])]
    onnx.save(model(pushed, inputs=[info("x", [1, 3])], outputs=("new",)), "push.onnx")


def test_states_and_entries(tinyedge: Command, tmp_path: Path) -> None:
    """Export, inspect, verify, run and bench of a bundle that keeps a queue between runs."""
    _memory(tmp_path)
    Path("parts.json").write_text('{"y": {"last": [1, 3]}}')
    options = ("--entry", "push=push.onnx", "--state", "queue=new:shift:keep")
    options += ("--slice", "y:first=0..1", "--slices", "parts.json")
    code, _, err = tinyedge("export", "total.onnx", "-t", "cpu", "-o", "b.tinyedge", *options)
    assert (code, err) == (0, "")
    code, out, _ = tinyedge("inspect", "b.tinyedge")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "state queue float32 [4, 3], a queue along axis 0" in lines
    assert "main 1 - y -" in lines
    assert "push 3 x new queue" in lines
    code, out, _ = tinyedge("inspect", "b.tinyedge", "--json")
    assert json.loads(out)["entries"][1]["updates"] == ["queue"]
    assert json.loads(out)["states"][0]["update"] == "shift"
    against = ("--against", "total.onnx", "--against", "push=push.onnx")
    code, out, err = tinyedge("verify", "b.tinyedge", *against)
    assert (code, err) == (0, "")
    assert "state queue" in out and out.count("onnxruntime") == 3
    code, out, _ = tinyedge("bench", "b.tinyedge", "--entry", "push", "--runs", "3")
    assert code == 0 and "shift queue" in out
    assert tinyedge("verify", "b.tinyedge", *against[:2], *against[:2])[0] == 2


def test_run_steps(tinyedge: Command, tmp_path: Path) -> None:
    """Several runs share the states; arrays with one more axis have an input for each."""
    from tinyedge import export_function

    x = np.zeros((2, 3), np.float32)
    export_function(
        lambda x, h: {"y": h + x, "h_out": h + x},
        {"x": x, "h": x},
        target="cpu",
        out="b.tinyedge",
        states={"h": "h_out"},
        golden=False,
    )
    values = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    np.save("all.npy", values)
    np.save("one.npy", values[1])
    run = ("run", "b.tinyedge", "-o", "results")
    assert tinyedge(*run, "--input", "all.npy", "--steps", "4")[0] == 0
    np.testing.assert_array_equal(np.load("results/y.npy"), values.sum(0))
    assert tinyedge(*run, "--input", "one.npy", "--steps", "3", "--repeat", "2")[0] == 0
    np.testing.assert_array_equal(np.load("results/y.npy"), 3 * values[1])
    code, out, _ = tinyedge(*run, "--random", "--steps", "4", "--json")
    assert code == 0 and len(json.loads(out)["seconds"]) == 4
    given = [golden.generate("float32", (2, 3), seed=1, run=step) for step in range(4)]
    np.testing.assert_allclose(np.load("results/y.npy"), np.sum(given, 0), rtol=1e-6)
    code, _, err = tinyedge(*run, "--input", "all.npy", "--steps", "3")
    assert code == 1 and "[run.shape]" in err


# On a real model: the smallest one.


@pytest.mark.parametrize("target", TARGETS)
def test_the_way_of_a_model(
    tinyedge: Command, target: str, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Export, inspect, verify against onnxruntime, run, bench: what the README shows."""
    if target == "cuda":
        monkeypatch.setattr(cuda, "open", lambda *_, **more: a_cuda_device(Shim(kernel_cache)))
    model = models.path("pnet")
    sizes = ("--dim", "M1=24", "--dim", "M2=16")
    code, out, err = tinyedge("export", model, "-t", target, "-o", "p.tinyedge", *sizes)
    assert (code, err) == (0, "note: the open leading size input_1[0] (N) is taken as 1\n")
    assert "kernels" in out
    code, out, err = tinyedge("verify", "p.tinyedge", "--against", model)
    assert (code, err) == (0, "")
    assert out.count("agrees") == 5 and "onnxruntime" in out
    code, out, _ = tinyedge("inspect", "p.tinyedge")
    assert "input    input_1 float32 [1, 24, 16, 3]" in out
    assert "output   softmax float32 [1, 7, 3, 2]" in out
    assert ("compiled sm_87 by NVRTC " in out) == (target == "cuda")
    np.save("x.npy", np.zeros((1, 24, 16, 3), np.float32))
    code, out, _ = tinyedge("run", "p.tinyedge", "--input", "x.npy")
    assert code == 0
    np.testing.assert_allclose(np.load("outputs/softmax.npy").sum(-1), 1, rtol=1e-5)
    assert "conv2d" in tinyedge("bench", "p.tinyedge", "--runs", "2")[1]


def test_cuda_without_a_driver(tinyedge: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is exported; what needs the GPU says what is missing and ends with 3."""
    from cuda.bindings import driver

    status = driver.CUresult.CUDA_ERROR_NO_DEVICE
    monkeypatch.setattr(driver, "cuInit", lambda flags: (status,))
    model = models.path("pnet")
    sizes = ("--dim", "M1=24", "--dim", "M2=16", "--dim", "N=1")
    exported = tinyedge(
        "export", model, "-t", "cuda", "-o", "p.tinyedge", "--arch", "sm_90", *sizes
    )
    assert (exported[0], exported[2]) == (0, "")
    for command in (("verify",), ("bench",), ("run", "--random")):
        code, _, err = tinyedge(*command, "p.tinyedge")
        assert code == 3 and "[device.missing]" in err and "CUDA_ERROR_NO_DEVICE" in err
    assert listing("cuda").because == "the driver says CUDA_ERROR_NO_DEVICE"
    code, _, err = tinyedge("export", model, "-t", "cuda", "--arch", "sm_1", *sizes)
    assert code == 2 and "[option.arch]" in err and "sm_87" in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("-t cpu --fallback wasm", "leave --fallback out"),
        ("-t cpu --precision fp16", "leave --precision out"),
        ("--arch sm_87", "leave --arch out"),
        ("--batch 4", "--batch: for --train"),
        ("--optimizer sgd --loss-scale 0", "--optimizer and --loss-scale: for --train"),
        ("--train * --loss mse_loss:y --batch 0", "0 is not in the range"),
        ("--train *", "--train needs --loss"),
    ],
)
def test_options_that_do_not_go_together(tinyedge: Command, options: str, said: str) -> None:
    code, _, err = tinyedge("export", models.path("pnet"), *options.split())
    assert code == 2 and said in err


def test_inspect_a_model(tinyedge: Command) -> None:
    code, out, err = tinyedge("inspect", models.path("pnet"))
    assert (code, err) == (0, "")
    assert "input    input_1 float32 [N, M1, M2, 3]" in out
    assert "symbolic M1 open, M2 open, N 1\nopen     taken as 32..1024:32 here" in out
    assert re.search(r"^Conv +5 +yes", out, re.MULTILINE)
    facts = json.loads(tinyedge("inspect", models.path("pnet"), "--json")[1])
    assert facts["operators"]["PRelu"] == 3
    assert facts["unsupported"] == {}


def test_explain_every_stage(tinyedge: Command) -> None:
    command = ("explain", models.path("pnet"), "--dim", "M1=24", "--dim", "M2=16", "-t", "cpu")
    expected = {
        "fold": "outputs: conv2d_4, softmax",
        "fuse": "kernel 1: 1 launch, first for ",
        "optimize": "move To(range=",
        "lower": "workgroup (",
        "render": "void k0_",
        "assemble": "arenas: ",
    }
    for stage, text in expected.items():
        code, out, err = tinyedge(*command, "--stop-after", stage)
        assert (code, err) == (0, ""), stage
        assert text in out, stage
    (found,) = re.finditer(r"arenas: (\d+) bytes, of which (\d+) are needed at once", out)
    assert 0 < int(found[2]) <= int(found[1])
    code, out, _ = tinyedge(*command, "--stop-after", "render", "--kernel", "2")
    assert code == 0 and out.count("void k") == 1
    assert tinyedge(*command, "--kernel", "99")[0] == 2
    code, _, err = tinyedge(*command, "--stop-after", "fold", "--kernel", "0")
    assert code == 2 and "no kernels yet after fold" in err


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "ModelError"), (b"hello", "ModelError"), (b"\x08\x07" * 50, "ModelError")],
)
def test_a_file_that_is_no_model(tinyedge: Command, content: bytes, message: str) -> None:
    Path("bad.onnx").write_bytes(content)
    for command in (("export", "bad.onnx"), ("inspect", "bad.onnx"), ("explain", "bad.onnx")):
        code, _, err = tinyedge(*command)
        assert code == 1 and message in err and "Traceback" not in err
    assert list(Path().glob("*.tinyedge")) == []


def test_counters_are_explained(tinyedge: Command, tmp_path: Path) -> None:
    """A product of 32 x 64 by 64 x 48: what an iteration of its inner loop loads and computes."""
    file = tmp_path / "product.onnx"
    onnx.save(corpus.matmul(), file)
    names = "kernel launches FLOP bytes FLOP a byte loads guards fused other integer registers"
    for profile, counts in (("default", ("4 x 1, 3 x 8", 12)), ("avx512", ("8 x 1, 3 x 16", 24))):
        given = ("explain", file, "-t", "cpu", "--profile", profile, "--counters")
        code, out, _ = tinyedge(*given)
        head, row = out.splitlines()[:2]
        assert code == 0 and head.split() == names.split()
        loads, fused = counts
        assert loads in row and row.split(loads)[1].split()[:2] == ["0", str(fused)]
    for option, value in (("--stop-after", "fuse"), ("--kernel", "0")):
        code, _, err = tinyedge("explain", file, "--counters", option, value)
        assert code == 2 and f"leave {option} out" in err


def test_counters_of_kernels_that_share_a_text(tinyedge: Command, tmp_path: Path) -> None:
    """Three products, two of one size, whose kernels are one text on webgpu: launches, arithmetic
    and bytes are of each size, which two numbers of it, given to the text, are among.
    """
    n, file = Network("sizes", 17), tmp_path / "products.onnx"
    sizes, made = ((16, 32, 64), (16, 32, 64), (32, 64, 96)), {}
    for number, (rows, inner, columns) in enumerate(sizes):
        x = n.input(f"x{number}", [rows, inner])
        made[n.node("MatMul", x, n.drawn(inner, columns))] = [rows, columns]
    onnx.save(n.model(made), file)
    _, out, _ = tinyedge("explain", file, "--stop-after", "assemble")
    assert out.count("k0_matmul_0") == 3
    code, out, _ = tinyedge("explain", file, "--counters")
    rows = [line.split()[1:5] for line in out.splitlines()[1:]]
    expected = []
    for count, (m, k, n_) in ((2, sizes[0]), (1, sizes[2])):
        work, size = 2 * m * k * n_, 4 * (m * k + k * n_ + m * n_ + 2)
        expected.append([str(count), str(work), str(size), f"{work / size:.1f}"])
    assert code == 0 and rows == expected


def test_open_sizes_are_explained(tinyedge: Command) -> None:
    code, _, err = tinyedge("export", models.path("pnet"))
    assert code == 1
    assert "M1" in err and "--dim" in err


def test_a_model_where_a_bundle_belongs(tinyedge: Command) -> None:
    Path("a model.onnx").write_bytes(b"")
    for command in ("run", "verify", "bench", "serve"):
        code, _, err = tinyedge(command, "a model.onnx")
        assert code == 1 and "an ONNX model is no bundle" in err
        assert "tinyedge export 'a model.onnx'" in err
        code, _, err = tinyedge(command, "nowhere")
        assert code == 1 and "there is no such folder" in err


def test_what_only_bundles_for_browsers_can(tinyedge: Command, addition: Path) -> None:
    code, _, err = tinyedge("serve", addition)
    assert code == 1 and "serve.target" in err
    code, _, err = tinyedge("verify", addition, "--browser")
    assert code == 1 and "verify.target" in err
    assert tinyedge("verify", addition, "--browser", "--device", "cpu")[0] == 2


def test_outputs_that_cannot_be_written(tinyedge: Command, addition: Path) -> None:
    Path("file").write_text("")
    code, _, err = tinyedge("run", addition, "--random", "--out", "file/folder")
    assert code == 1 and "run.write" in err and "--out" in err


def test_inspect_an_output_without_a_shape(tinyedge: Command) -> None:
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        "open",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
    )
    onnx.save(onnx.helper.make_model(graph), "open.onnx")
    code, out, _ = tinyedge("inspect", "open.onnx")
    assert code == 0 and "output   y float32 any shape" in out


def test_names_that_the_terminal_cannot_print(addition: Path) -> None:
    path = addition.rename(addition.with_name("ü.tinyedge"))
    done = subprocess.run(
        [sys.executable, "-m", "tinyedge", "inspect", str(path)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
    )
    assert done.returncode == 0 and b"\\xfc.tinyedge: bundle for cpu" in done.stdout


@pytest.mark.parametrize("full", [False, True])
def test_a_cache_that_cannot_be_written_is_a_note(
    full: bool, tinyedge: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On standard error, once, and the command succeeds."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ("folder" if full else "file") / "cache"))
    if full:
        usage = shutil.disk_usage(tmp_path)._replace(free=2**20)
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    _memory(tmp_path)
    code, out, err = tinyedge("export", "push.onnx", "-t", "cpu")
    assert code == 0 and out.startswith("push.tinyedge: 1 kernel")
    assert err.startswith("note: kernels are compiled in every process: the cache folder ")
    assert err.count("\n") == 1 and err.endswith("has no space left\n") == full
    code, out, err = tinyedge("verify", "push.tinyedge")
    assert (code, err) == (0, "")


EVIL = "evil\n  next       FORGED\nFORGED\r\x1b[2J\x1b]0;t\x07\u202e\u2028\x85\x9b1m"


PORT = "port\u202e\u2028\x85\x9b1m"  # what names of inputs and outputs may hold


def hostile_model(folder: Path) -> Path:
    """A model whose every name has line ends, escape sequences and signs of direction."""
    from onnx import TensorProto, helper

    value, make = helper.make_tensor_value_info, helper.make_node
    x, y, p = (f"{name}{PORT}" for name in "xyp")
    w, n = (f"{name}{EVIL}" for name in "wn")
    nodes = [
        make("Mul", [x, w], ["m"], name=n),
        make("ReduceSum", ["m"], [y], name=f"2{n}", keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        f"g{EVIL}",
        [value(x, TensorProto.FLOAT, [p, 3])],
        [value(y, TensorProto.FLOAT, [])],
        [helper.make_tensor(w, TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])],
    )
    opsets = [helper.make_opsetid("", 17)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name=EVIL)
    made.producer_version = EVIL
    onnx.save(made, folder / "hostile.onnx")
    made.graph.node[0].op_type = f"Op{EVIL}"
    made.graph.input[0].name = made.graph.node[0].input[0] = f"x{EVIL}"
    made.graph.node[0].domain = f"domain{EVIL}"
    made.opset_import.append(helper.make_opsetid(f"domain{EVIL}", 1))
    onnx.save(made, folder / "refused.onnx")
    return folder / "hostile.onnx"


def test_names_of_a_model_are_printed_escaped(tinyedge: Command, tmp_path: Path) -> None:
    """By every command, in results, notes and errors: no line is forged, no terminal is driven."""
    model, out = hostile_model(tmp_path), tmp_path / "out"
    refused = tmp_path / "refused.onnx"
    np.save("x.npy", np.ones((2, 3), np.float32))
    commands: list[tuple[int, tuple[object, ...]]] = [
        (0, ("inspect", model)),
        (1, ("inspect", refused)),
        (1, ("inspect", refused, "--keep-going")),
        (1, ("export", refused, "-o", out, "-t", "cpu")),
        (1, ("export", refused, "-o", out, "-t", "cpu", "--keep-going")),
        (1, ("export", model, "-o", out, "-t", "cpu", "--dim", f"q{EVIL}=3")),
        (1, ("export", model, "-o", out, "-t", "cpu", "--outputs", f"q{EVIL}")),
        (0, ("export", model, "-o", out, "-t", "cpu", "--dim", f"p{PORT}=1..4", "--timing")),
        (0, ("inspect", out)),
        (0, ("inspect", out, "--kernel", "0")),
        (0, ("verify", out)),
        (0, ("run", out, "--input", f"x{PORT}=x.npy")),
        (1, ("run", out, "--input", f"q{EVIL}=x.npy")),
        (1, ("run", out, "--random", "--entry", EVIL)),
        (0, ("bench", out, "--runs", "1")),
        (1, ("inspect", tmp_path / f"nothing{EVIL}")),
    ]
    stages = ("fold", "fuse", "optimize", "lower", "render", "assemble")
    commands += [(0, ("explain", model, "--stop-after", stage)) for stage in stages]
    for code, command in commands:
        got, printed, said = tinyedge(*command)
        assert got == code, (command, said)
        text = printed + said
        assert all(c.isprintable() or c in "\n\t" for c in text), (command, text)
        forged = [line for line in text.split("\n") if re.match(r"( {2}next {7})?FORGED", line)]
        assert not forged, (command, text)


def piped(*arguments: object, more: str) -> tuple[int, str, str]:
    """The command line in a shell of its own: its exit code, and what was printed."""
    line = " ".join(map(str, (sys.executable, "-m", "tinyedge", *arguments)))
    end = subprocess.run(
        ["sh", "-c", f"{{ {line} {more}"], capture_output=True, text=True, check=False
    )
    return end.returncode, end.stdout, end.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
def test_pipes_and_closed_streams(tmp_path: Path, cpu_device: Device) -> None:
    """What nobody reads changes no exit code; what cannot be written does."""
    path = bundle(tmp_path, programs.addition("cpu"), cpu_device)
    missing = tmp_path / "missing"
    code = f"; echo $? >{tmp_path / 'code'}; }}"
    for command, expected in ((path, 0), (missing, 1)):
        for more in (
            f"2>&1{code} | true",
            f"2>&1{code} | head -n 1",
            f">&-{code}",
            f">&- 2>&-{code}",
        ):
            (tmp_path / "code").unlink(missing_ok=True)
            _, _, said = piped("inspect", command, more=more)
            assert int((tmp_path / "code").read_text()) == expected, (more, said)
            assert (
                "Traceback" not in said and "InternalError" not in said and "rror ign" not in said
            )
    assert piped("--help", more=f"{code} | true")[2] == ""
    if os.path.exists("/dev/full"):
        for command in ("inspect", path), ("devices", "--json"):
            got, _, said = piped(*command, more=">/dev/full; }")
            assert got == 1 and "Traceback" not in said
            assert "standard output cannot be written: No space left on device" in said
            assert "next       free some space, or write it to another place" in said
        for command, expected in (("inspect", path), 0), (("inspect", missing), 1), (("no",), 2):
            assert piped(*command, more="2>/dev/full; }")[0] == expected
        assert piped("inspect", path, more=">/dev/full 2>&1; }")[0] == 1
