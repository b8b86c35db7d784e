"""What only the cpu device has: the compiler, its cache, threads, guards."""

from __future__ import annotations

import dataclasses
import errno
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyedge
from tests.targets import programs
from tinyedge import goldens
from tinyedge.choices import choose_options, find_target
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.errors import DeviceError, InternalError
from tinyedge.core.program.program import Copy, Launch, Program
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.bundle.golden import generate
from tinyedge.export.bundle.reading import read
from tinyedge.export.source import trace
from tinyedge.targets.cpu import compiler as compilers
from tinyedge.targets.cpu import device as cpu
from tinyedge.targets.cpu import threads as pools
from tinyedge.targets.cpu import wasm

OPEN = cpu.open
ONES = np.ones((4, 64), np.float32)


def run_addition(device: cpu.CpuDevice, program: Program | None = None) -> float:
    with Replay(program or programs.addition("cpu"), device) as replay:
        return float(replay.run({"a": ONES, "b:0": ONES})["c"][0, 0])


def with_source(source: str) -> Program:
    program = programs.addition("cpu")
    kernel = dataclasses.replace(program.kernels[0], source=source)
    return dataclasses.replace(program, kernels=(kernel,))


def test_a_refused_kernel_carries_the_message_of_the_compiler() -> None:
    with pytest.raises(DeviceError, match="no_such_variable") as caught:
        run_addition(cpu.open(cache=None), with_source("void add(void) { no_such_variable = 1; }"))
    assert caught.value.id == "device.compile"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("words", ["-S", "-shared -fPIC"], ids=["compiler", "linker"])
def test_a_full_disk_is_no_fault_of_the_kernels(tmp_path: Path, words: str) -> None:
    """Every byte of /dev/full is refused as on a full disk, so that the compiler itself says it."""
    script = tmp_path / "cc"
    script.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exec cc --version\n'
        f"exec cc {words} unit0.c -o /dev/full\n"
    )
    script.chmod(0o755)
    with pytest.raises(DeviceError, match="no space left on the disk") as caught:
        run_addition(cpu.open(compiler=[str(script)], cache=None))
    assert caught.value.id == "device.compile" and "TMPDIR" in caught.value.next
    said = ("writes to", *(["/dev/full"] if words == "-S" else []))  # which a linker does not name
    assert all(word in caught.value.because for word in said)


@pytest.mark.parametrize("built", ["kernels", "module"])
def test_a_full_disk_that_gets_no_text_is_told(
    built: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text of C is written before any compiler runs: to a file, which the error names."""

    def refuse(file: Path, *_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(DeviceError, match="no space left on the disk") as caught:
        if built == "kernels":
            run_addition(cpu.open(cache=tmp_path / "kernels"))
        else:
            wasm.build("void add(void) {}", (), print)
    error = caught.value
    assert error.id == "device.compile" and "TMPDIR" in error.next
    assert ("unit0.c" if built == "kernels" else "kernels.c") in error.because


def test_a_source_without_its_function_is_our_bug() -> None:
    with pytest.raises(InternalError, match="defines no such function"):
        run_addition(cpu.open(cache=None), with_source("void subtract(void) {}"))


def test_kernels_of_little_work_are_compiled_without_optimization(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The large ones are optimized; both compute the same. Short texts are one, of all kernels."""
    sizes = [8, 8, 16, 8, 300, 8, 24, 8, 320, 8]
    random = np.random.default_rng(0)
    w = [random.standard_normal(pair).astype(np.float32) for pair in pairwise(sizes)]

    def function(x: Tensor) -> Tensor:
        for weight in w:
            x = (x @ Tensor.weight("w", weight)).in_memory()
        return x

    x = random.standard_normal((500, 8)).astype(np.float32)
    compiled = compile_graph(trace(function, {"x": x}), find_target("cpu"), choose_options("cpu"))
    program = compiled.program
    assert program is not None
    units: list[compilers.Unit] = []
    build = compilers.build
    outputs = []
    far = 1 << 40
    for little_work, apart in ((0, 0), (1 << 20, 0), (far, 0), (1 << 20, far), (far, far)):
        with monkeypatch.context() as patch:
            patch.setattr(compilers, "build", lambda u, *rest: units.extend(u) or build(u, *rest))
            patch.setattr(cpu, "TEXT_APART", apart)
            device = cpu.open(cache=None, little_work=little_work)
            with Replay(program, device) as replay:
                outputs.append(replay.run({"x": x})["output"])
    first, second, much, little, third, fourth, *whole = units
    assert [unit.flags for unit in whole] == [(), ("-O0",)]
    assert all(f"void {kernel.name}(" in unit.text for unit in whole for kernel in program.kernels)
    assert first.flags == second.flags == much.flags == ()
    assert little.flags == third.flags == fourth.flags == ("-O0",)
    flops = [step.flops for step in program.entries[0].steps if isinstance(step, Launch)]
    for kernel, count in zip(program.kernels, flops, strict=True):
        assert (f"void {kernel.name}(" in much.text) == (count > 1 << 20)
        assert (f"void {kernel.name}(" in little.text) == (count < 1 << 20)
    for output in outputs[1:]:
        np.testing.assert_array_equal(output, outputs[0])


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DeviceError, match=r"pip install '\.\[cpu\]'"):
        cpu.open()
    assert cpu.devices() == []


def test_a_compiler_that_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="does not run"):
        cpu.open(compiler=[str(tmp_path / "nothing")])


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang not installed")
def test_the_ziglang_wheel_replaces_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    device = cpu.open(cache=None)
    assert device.name.count("clang") == 1
    assert run_addition(device) == 2


def test_the_cache_is_used_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "kernels"
    assert run_addition(cpu.open(cache=cache)) == 2
    (kept,) = cache.iterdir()
    assert kept.suffix == ".so"
    os.utime(kept, (1, 1))

    def refuse(*arguments: object) -> None:
        raise AssertionError("compiled again")

    with monkeypatch.context() as patch:
        patch.setattr(compilers, "_compile", refuse)
        assert run_addition(cpu.open(cache=cache)) == 2
    assert kept.stat().st_mtime > 1, "a hit counts as a use"

    monkeypatch.setattr(compilers, "CACHE_BYTES", kept.stat().st_size)
    os.utime(kept, (1, 1))
    assert run_addition(cpu.open(cache=cache, optimization=["-O1"])) == 2
    (newer,) = cache.iterdir()
    assert newer != kept


def test_a_damaged_cache_entry_is_replaced(tmp_path: Path) -> None:
    cache = tmp_path / "kernels"
    run_addition(cpu.open(cache=cache))
    (kept,) = cache.iterdir()
    kept.write_bytes(b"not a library")
    assert run_addition(cpu.open(cache=cache)) == 2
    assert kept.stat().st_size > 100


@pytest.mark.parametrize("what", ["pipe", "link to a device"])
def test_what_is_no_file_in_the_cache(tmp_path: Path, what: str) -> None:
    """It is not waited for, or read without end."""
    cache = tmp_path / "kernels"
    run_addition(cpu.open(cache=cache))
    (kept,) = cache.iterdir()
    kept.unlink()
    if what == "pipe":
        os.mkfifo(kept)
    else:
        kept.symlink_to("/dev/zero")
    assert run_addition(cpu.open(cache=cache)) == 2
    assert kept.is_file() and not kept.is_symlink(), "it is compiled again, and kept"


def test_libraries_are_unloaded_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where Python drops the last use of one: what a signal's handler raises there is lost."""
    closed: list[int] = []
    monkeypatch.setattr("_ctypes.dlclose", closed.append)
    compilers.unload()
    closed.clear()
    unit = compilers.Unit("int one(void) { return 1; }")
    library = compilers.build([unit], compilers.find())
    handle = library._handle._handle
    assert library["one"]() == 1
    calls: list[str] = []
    sys.setprofile(lambda frame, event, _: event == "call" and calls.append(frame.f_code.co_name))
    del library
    sys.setprofile(None)
    assert calls == [], "code of Python, in which a signal may be lost"
    assert closed == []
    compilers.build([unit], compilers.find())
    assert closed == [handle]


@pytest.mark.parametrize("damage", ["cut", "flipped", "another", "empty", "folder"])
def test_damage_of_the_cache(tmp_path: Path, damage: str) -> None:
    """What lies in the cache under a name is not what was compiled: 1 + 1 is 2 all the same."""
    cache = tmp_path / "kernels"
    run_addition(cpu.open(cache=cache))
    (kept,) = cache.iterdir()
    content = kept.read_bytes()
    wrong = content
    if damage == "flipped":  # what is right about it: its key, its size, that it is a library
        place = content.index(b"\0" * 64) + 32
        wrong = content[:place] + b"\1" + content[place + 1 :]
    elif damage == "another":
        subtract = programs.addition("cpu").kernels[0].source.replace("b0[i] +", "b0[i] -")
        other = tmp_path / "other"
        run_addition(cpu.open(cache=other), with_source(subtract))
        wrong = next(other.iterdir()).read_bytes()
    kept.unlink()  # a new file: the old one is in use, where the device does not copy it
    if damage == "folder":
        kept.mkdir()
    else:
        kept.write_bytes({"cut": content[:5000], "empty": b""}.get(damage, wrong))
    assert run_addition(cpu.open(cache=cache)) == 2
    if damage != "folder":
        assert kept.read_bytes() == content
        assert [path.name for path in cache.iterdir()] == [kept.name]


def test_a_library_in_use_does_not_depend_on_its_file(tmp_path: Path) -> None:
    cache = tmp_path / "kernels"
    for _ in range(2):  # compiled, then from the cache
        with Replay(programs.addition("cpu"), cpu.open(cache=cache)) as replay:
            for kept in cache.glob("*.so"):
                os.truncate(kept, 0)
            assert replay.run({"a": ONES, "b:0": ONES})["c"][0, 0] == 2
        run_addition(cpu.open(cache=cache))


def test_what_killed_processes_left_in_the_cache_goes(tmp_path: Path) -> None:
    cache = tmp_path / "kernels"
    for name, age in (("new-old", compilers.STALE_SECONDS + 60), ("new-young", 60)):
        (cache / name).mkdir(parents=True)
        (cache / name / "unit0.c").touch()
        os.utime(cache / name, (time.time() - age, time.time() - age))
    cache.chmod(0o700)
    run_addition(cpu.open(cache=cache))
    assert sorted(path.name for path in cache.iterdir() if path.is_dir()) == ["new-young"]


@pytest.mark.skipif(sys.platform == "win32", reason="permission bits")
@pytest.mark.parametrize(
    ("mode", "used"), [(0o777, False), (0o1777, True), (0o755, True), (0o775, os.getuid() == 0)]
)
def test_a_cache_below_a_folder_of_others(tmp_path: Path, mode: int, used: bool) -> None:
    """Who can rename a folder can put another one in its place; /tmp is sticky."""
    shared = tmp_path / "shared"
    cache = shared / "tinyedge" / "kernels"
    cache.mkdir(parents=True, mode=0o700)
    shared.chmod(mode)
    assert run_addition(cpu.open(cache=cache)) == 2
    assert bool(list(cache.iterdir())) == used


def test_a_user_without_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(compilers.Path, "home", no_home)
    assert run_addition(cpu.open()) == 2


def test_concurrent_users_of_one_cache(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = pool.map(lambda _: run_addition(cpu.open(cache=tmp_path / "kernels")), range(8))
        assert list(results) == [2] * 8


@pytest.mark.skipif(sys.platform == "win32", reason="permission bits")
def test_a_cache_that_cannot_be_used_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    for cache, why in (
        (tmp_path / "file" / "kernels", "cannot be made: Not a directory"),
        (open_to_all, "can be written by other users"),
    ):
        caplog.clear()
        for _ in range(2):
            assert run_addition(cpu.open(cache=cache)) == 2
        (record,) = caplog.records
        assert record.name == "tinyedge" and record.levelname == "WARNING"
        assert f"the cache folder {cache} {why}" in record.getMessage()


def test_a_cache_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    cache = tmp_path / "kernels"
    cache.mkdir()
    cache.chmod(0o777)
    assert run_addition(cpu.open(cache=cache)) == 2
    assert list(cache.iterdir()) == []


def test_cache_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compilers.cache_folder() == tmp_path / "tinyedge" / "kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert compilers.cache_folder() == Path.home() / ".cache" / "tinyedge" / "kernels"


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_threads_do_not_change_the_result(threads: int, kernel_cache: Path) -> None:
    program = programs.addition("cpu")
    launch = dataclasses.replace(program.entries[0].steps[0], flops=10**9)
    assert isinstance(launch, Launch)
    entry = dataclasses.replace(program.entries[0], steps=(launch,))
    program = dataclasses.replace(program, entries=(entry,))
    device = cpu.open(threads=threads, cache=kernel_cache)
    with Replay(program, device) as replay:
        result = replay.run({"a": ONES, "b:0": ONES})["c"]
    np.testing.assert_array_equal(result.reshape(-1), 2 + np.arange(256))
    device.close()
    device.close()


def no_threads(*_: object, **__: object) -> None:
    pytest.fail("threads were compiled")


def test_one_thread_needs_nothing_but_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """It launches and copies, and has times of both."""
    monkeypatch.setattr(pools, "functions", no_threads)
    device = cpu.open(threads=1)
    with Replay(programs.counter("cpu"), device) as replay:
        for total in (11, 12):
            assert set(replay.run({"x": np.ones(64, np.float32)})["total"]) == {total}
    with Replay(programs.addition("cpu"), device) as replay:
        timings = replay.profile({"a": ONES, "b:0": ONES})
    assert [type(step) for step, _ in timings] == [Launch, Copy]


@pytest.mark.parametrize(("more", "threads"), [(0, None), (8, 1)])
def test_goldens_of_little_work_take_one_thread(
    more: int, threads: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """8,192 products and as many sums, and the 256 numbers that are written, in each of 8 runs."""
    opened: list[Any] = []
    monkeypatch.setattr(goldens, "WORK_OF_ONE", 8 * (2 * 8192 + 256) + more)
    monkeypatch.setattr(cpu, "open", lambda **given: opened.append(given) or OPEN(**given))
    x, w = np.zeros((32, 32), np.float32), np.arange(256, dtype=np.float32).reshape(32, 8)
    out = tmp_path / "product.tinyedge"
    tinyedge.export_function(lambda x: x @ w, {"x": x}, target="webgpu", out=out, golden_steps=8)
    assert [given["threads"] for given in opened] == [threads]
    (case,) = read(out).goldens()
    row = generate("float32", (32,), seed=1, run=7).astype(np.float64)
    np.testing.assert_array_equal(case.outputs[0].data[:8], (row @ w).astype(np.float32))


def test_a_write_outside_the_arena_is_found() -> None:
    launch = Launch(0, (0, 1, 3, 2), (programs.ARENA // 256 + 1, 1, 1))
    program = programs.addition("cpu")
    entry = dataclasses.replace(program.entries[0], steps=(launch,))
    kernel = programs.kernel(
        "cpu", "add", "wwrw", f"if (i >= {programs.ARENA // 4 - 512}) b3[i] = 0;"
    )
    program = dataclasses.replace(program, kernels=(kernel,), entries=(entry,))
    with pytest.raises(InternalError, match="behind its arena"):
        run_addition(cpu.open(guard=True, cache=None), program)


def test_a_grid_of_two_dimensions_is_refused(cpu_device: cpu.CpuDevice) -> None:
    program = programs.addition("cpu")
    launch = Launch(0, (0, 1, 3, 2), (1, 2, 1))
    entry = dataclasses.replace(program.entries[0], steps=(launch,))
    with pytest.raises(InternalError, match="one dimension"):
        run_addition(cpu_device, dataclasses.replace(program, entries=(entry,)))


def test_too_much_memory(cpu_device: cpu.CpuDevice) -> None:
    with pytest.raises(DeviceError, match="cannot allocate") as caught:
        cpu_device.alloc(2**60)
    assert caught.value.id == "device.memory"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86")
def test_a_vector_is_loaded_once_for_all_rows_of_a_tile(tmp_path: Path) -> None:
    """With GCC's tuning for AMD's processors it was loaded again for each of its products."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(64, 96)).astype(np.float32)
    out = tinyedge.export_function(
        lambda x: x @ w,
        {"x": rng.normal(size=(24, 64)).astype(np.float32)},
        target="cpu",
        out=tmp_path / "product.tinyedge",
        golden=False,
    )
    found = compilers.find()
    flags = (*found.flags, *compilers.FLAGS, "-O2", "-march=x86-64-v3", "-S")
    for tune in ((), ("-mtune=znver3",)) if found.flags else ((),):
        (tmp_path / "kernel.c").write_text((out / "kernels.c").read_text("ascii"))
        command = [*found.command, *tune, *flags, "-o", "kernel.s", "kernel.c"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert not done.returncode, done.stderr
        lines = (tmp_path / "kernel.s").read_text().splitlines()
        products = [line for line in lines if re.search(r"vfmadd\d+ps", line)]
        assert len(products) >= 8
        assert not [line for line in products if "(" in line]  # an operand in memory
