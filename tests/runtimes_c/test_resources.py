"""Memory, files, threads, code size: what the header promises beside results."""

from __future__ import annotations

import ctypes as c
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyedge
from tests.runtimes_c import build
from tests.runtimes_c.conftest import Build, write
from tests.runtimes_c.library import ALLOCATE, RELEASE, Allocator, Library, RuntimeFailure
from tests.runtimes_c.test_runtime import cases, heavy
from tests.targets import programs
from tinyedge.core.program.device import Device
from tinyedge.core.program.program import Entry, Port
from tinyedge.core.program.replay import Replay
from tinyedge.export.package.c_bundle import BACKENDS

CODE_BYTES = 64 * 1024
LIBRARIES = ("-pthread", "-lm", "-ldl")


class Memory:
    """An allocator that counts, and whose allocation number `failing` fails.

    beside: bytes that something else has, which are part of the peak.
    """

    def __init__(self, failing: int = -1, beside: Callable[[], int] = lambda: 0) -> None:
        libc = c.CDLL(None)
        libc.malloc.restype, libc.malloc.argtypes = c.c_void_p, [c.c_size_t]
        libc.free.argtypes = [c.c_void_p]
        self.live: dict[int, int] = {}
        self.sizes: list[int] = []
        self.peak = 0
        self.failing = failing

        def allocate(_: int, size: int) -> int | None:
            self.sizes.append(size)
            if len(self.sizes) - 1 == self.failing:
                return None
            address: int = libc.malloc(size)
            self.live[address] = size
            self.peak = max(self.peak, sum(self.live.values()) + beside())
            return address

        def release(_: int, address: int) -> None:
            del self.live[address]
            libc.free(address)

        self.allocator = Allocator(ALLOCATE(allocate), RELEASE(release), None)


def use(library: Library, memory: Memory) -> None:
    """Open, create, test, close: everything that allocates."""
    model = library.open(library.open_options(memory.allocator))
    try:
        library.c.te_destroy(library.create(model))
        library.self_test(model)
    finally:
        library.c.te_close(model)


def test_every_allocation_may_fail(library: Build, cpu_device: Device) -> None:
    program = programs.counter("cpu")
    with Replay(program, cpu_device) as replay:
        built = library(program, cases(program, replay))
    sound = Memory()
    use(built, sound)
    assert not sound.live
    assert len(sound.sizes) > 8
    for failing in range(len(sound.sizes)):
        memory = Memory(failing)
        with pytest.raises(RuntimeFailure) as caught:
            use(built, memory)
        assert caught.value.id == "device.memory"
        assert not memory.live, failing


def test_measured_memory_is_what_is_taken(library: Build) -> None:
    built = library(programs.counter("cpu"))
    measured = built.measure()
    memory = Memory()
    model = built.open(built.open_options(memory.allocator))
    assert sum(memory.live.values()) == measured.manifest + measured.weights
    context = built.create(model)
    taken = sum(getattr(measured, name) for name, _ in type(measured)._fields_)
    assert sum(memory.live.values()) == taken
    # Beyond weights and planned arenas, there is little.
    assert taken < 16384 + 256 + 2**20
    built.c.te_destroy(context)
    built.c.te_close(model)
    assert not memory.live


def with_kernels(
    out: Path, folder: Path, source: str, *flags: str, compiler: str = build.CC
) -> Path:
    """A test program linked with a bundle's kernels."""
    kernels = out.with_suffix(".o")
    include = f"-I{folder}"
    runtime = f"-I{build.c_bundle.FOLDER}"
    build.run(compiler, *flags, include, runtime, "-c", "-o", kernels, folder / "model.c")
    return build.program(out, source, (*flags, include), kernels, compiler=compiler)


@pytest.mark.parametrize("name", ["addition", "counter"])
def test_after_creation_no_allocation_and_no_file(tmp_path: Path, name: str) -> None:
    program = getattr(programs, name)("cpu")
    program = heavy(program) if name == "addition" else program
    folder = write(program, tmp_path / "bundle")
    program_file = with_kernels(tmp_path / "quiet", folder, "quiet.c", "-O1")
    answer = build.run(program_file, folder, 10_000)
    assert answer == 2 * "0 allocations, 0 file accesses\n"  # without times, with them


@pytest.mark.parametrize("threads", [1, 3])
def test_self_tests_under_sanitizers(tmp_path: Path, cpu_device: Device, threads: int) -> None:
    """States, loops, counts, conversions, symbols: all accesses stay inside."""
    compiler, sanitize = build.sanitized()
    objects = build.objects(compiler, sanitize)
    small = (programs.symbolic, programs.repeat, programs.counter, programs.ports)
    for program in (
        *(make("cpu") for make in small),
        programs.selection("cpu"),
        heavy(programs.addition("cpu")),
    ):
        with Replay(program, cpu_device) as replay:
            made = cases(program, replay)
        folder = write(program, tmp_path / "bundle", made)
        include = ("-I", folder, "-I", build.c_bundle.FOLDER)
        build.run(build.CC, *include, "-c", "-o", tmp_path / "model.o", folder / "model.c")
        main = (*build.STRICT, *sanitize, *include, build.c_bundle.FOLDER / "main.c")
        files = (tmp_path / "model.o", *objects, "-pthread", "-lm")
        build.run(compiler, *main, "-o", tmp_path / "run", *files)
        options = ("--self-test", "--threads", threads)
        said = build.run(tmp_path / "run", folder, *options)
        assert f"self-test: {len(made)} cases" in said
        assert "0 wrong, 0 distinct" in said
        build.run(tmp_path / "run", folder, "--loop", 3, "--profile", "--threads", threads)


def code_bytes(folder: Path, target: str, compiler: str, prefix: str = "") -> int:
    """What the runtime adds to a stripped program: code, constants and data, optimized for size."""
    objects = []
    unwinding = ("-fno-asynchronous-unwind-tables", "-fno-unwind-tables")
    flags = (*build.STRICT, "-Os", "-fPIC", *unwinding)
    for source in build.sources(target):
        objects.append(folder / f"{source.stem}.o")
        build.run(compiler, *flags, "-c", "-o", objects[-1], source)
    build.run(compiler, "-shared", "-Wl,-z,defs", "-o", folder / "all.so", *objects, *LIBRARIES)
    total = build.run(f"{prefix}size", "-t", *objects).splitlines()[-1]
    text, data, bss, *_ = map(int, total.split()[:3])
    assert bss == 0  # no globals
    return text + data


@pytest.mark.parametrize("compiler", build.COMPILERS)
@pytest.mark.parametrize("target", BACKENDS)
def test_code_size(tmp_path: Path, target: str, compiler: str) -> None:
    assert code_bytes(tmp_path, target, compiler) <= CODE_BYTES


@pytest.mark.parametrize("compiler", build.COMPILERS)
@pytest.mark.parametrize("define", ["NO_THREADS", "NO_FOLDER", "NO_MALLOC", "FUZZ"])
def test_compiles_without_parts(tmp_path: Path, compiler: str, define: str) -> None:
    every = {file for target in BACKENDS for file in build.sources(target)}
    for source in (*every, *build.OPTIONAL):
        flags = (*build.STRICT, f"-DTINYEDGE_{define}")
        build.run(compiler, *flags, "-c", "-o", tmp_path / "part.o", source)


@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
def test_usable_from_cpp(tmp_path: Path, runtime: Path) -> None:
    folder = write(programs.addition("cpu"), tmp_path / "bundle")
    source = tmp_path / "use.cpp"
    source.write_text(
        '#include "model.h"\n'
        "int main() {\n"
        "    te_open_options options = {};\n"
        "    options.size = sizeof options;\n"
        "    te_model *model;\n"
        "    if (te_open(&options, &model, nullptr) != TE_API_ARGUMENT) return 1;\n"
        '    static_assert(MODEL_OUTPUT_C_SLICE_TAIL_OFFSET == 192, "model.h");\n'
        "    return bundle_kernels.count == 1 && MODEL_INPUT_COUNT == 2 ? 0 : 2;\n"
        "}\n"
    )
    include = ("-I", folder, "-I", build.c_bundle.FOLDER)
    build.run(build.CC, *include, "-c", "-o", tmp_path / "model.o", folder / "model.c")
    strict = ("-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
    objects = (tmp_path / "model.o", runtime)
    build.run("g++", *strict, *include, "-o", tmp_path / "use", source, *objects, "-pthread", "-lm")
    build.run(tmp_path / "use")


def test_the_headers_example(tmp_path: Path, runtime: Path) -> None:
    """It is compiled as it stands there, with the warnings of a strict program, and run."""
    port = Port("image", "float32", (64,), "float32", 0)
    program = programs.program(
        "cpu",
        inputs=(port,),
        outputs=(replace(port, name="scores"),),
        buffers=(programs.place(0, 256),),
        kernels=(),
        entries=(Entry("main", ("image",), ("scores",), ()),),
    )
    folder = write(program, tmp_path / "pnet.tinyedge")
    manual = (build.c_bundle.FOLDER / "tinyedge.h").read_text("ascii")
    example = "\n".join(re.findall("^    .*$", manual.split("THE RULES")[0], re.MULTILINE))
    source = tmp_path / "example.c"
    source.write_text(
        '#include "model.h"\n#include <stdio.h>\n'
        "int main(void) {\n    float pixels[64] = {1, 2}, floats[64] = {0};\n"
        f"{example}\n    return floats[1] != 2;\n}}\n"
    )
    include = ("-I", folder, "-I", build.c_bundle.FOLDER)
    build.run(build.CC, *include, "-c", "-o", tmp_path / "model.o", folder / "model.c")
    files = (source, tmp_path / "model.o", runtime, "-pthread", "-lm")
    build.run(build.CC, *build.STRICT, *include, "-o", tmp_path / "example", *files)
    build.run(tmp_path / "example", cwd=tmp_path)


def both(tmp_path: Path, first: str, second: str) -> tuple[Path, Path]:
    """Two bundles of kernels with the same names, in folders of these names."""
    one = write(programs.addition("cpu"), tmp_path / "one" / first)
    two = write(programs.counter("cpu"), tmp_path / "two" / second)
    return one, two


def linked(
    tmp_path: Path, folders: Sequence[Path], headers: str, text: str, runtime: Path, language: str
) -> None:
    """Compile and run a program that includes these headers, with the kernels of all folders."""
    include = ("-I", tmp_path, "-I", build.c_bundle.FOLDER)
    objects = []
    for number, folder in enumerate(folders):
        objects.append(tmp_path / f"model{number}.o")
        build.run(build.CC, *include, "-c", "-o", objects[-1], folder / "model.c")
    source = tmp_path / f"both.{language}"
    source.write_text(f"{headers}#include <string.h>\nint main() {{ {text} }}\n")
    standard = "-std=c++11" if language == "cpp" else "-std=c99"
    compiler = "g++" if language == "cpp" else build.CC
    flags = (standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror")
    files = (source, *objects, runtime, "-pthread", "-lm")
    build.run(compiler, *flags, *include, "-o", tmp_path / "both", *files)
    build.run(tmp_path / "both")


@pytest.mark.parametrize("language", ["c", "cpp"])
def test_several_bundles_in_one_program(tmp_path: Path, runtime: Path, language: str) -> None:
    folders = both(tmp_path, "pnet.tinyedge", "r-net 2.tinyedge")
    headers = (
        '#include "one/pnet.tinyedge/model.h"\n#include "two/r-net 2.tinyedge/model.h"\n'
        '#include "one/pnet.tinyedge/model.h"\n'
    )
    text = (
        "if (PNET_INPUT_COUNT != 2 || R_NET_2_INPUT_COUNT != 1) return 1;"
        "if (PNET_STATE_COUNT != 0 || R_NET_2_STATE_COUNT != 1) return 2;"
        "if (R_NET_2_KERNELS != &r_net_2_kernels || !PNET_BACKEND) return 3;"
        "if (!strcmp(PNET_PLAN, R_NET_2_PLAN)) return 4;"
        'return strcmp(PNET_INPUT_B_0_NAME, "b:0") || pnet_kernels.plan[0] != PNET_PLAN[0];'
    )
    linked(tmp_path, folders, headers, text, runtime, language)


def test_short_names_are_of_the_only_model(tmp_path: Path, runtime: Path) -> None:
    folders = both(tmp_path, "pnet.tinyedge", "rnet.tinyedge")
    one = '#include "one/pnet.tinyedge/model.h"\n'
    two = '#include "two/rnet.tinyedge/model.h"\n'
    text = "return MODEL_INPUT_COUNT != PNET_INPUT_COUNT || MODEL_KERNELS != &pnet_kernels;"
    linked(tmp_path, folders, one, text, runtime, "c")
    with pytest.raises(AssertionError, match="several_models_are_included_say_RNET_INPUT_COUNT"):
        linked(tmp_path, folders, one + two, "return MODEL_INPUT_COUNT;", runtime, "c")


def test_two_bundles_of_one_name_are_told_apart(tmp_path: Path, runtime: Path) -> None:
    folders = both(tmp_path, "net.tinyedge", "net.tinyedge")
    headers = "".join(
        f'#include "{number}/net.tinyedge/model.h"\n' for number in ("one", "two", "one")
    )
    with pytest.raises(AssertionError, match=r"two bundles are called NET: .* --name"):
        linked(tmp_path, folders[:1], headers, "return 0;", runtime, "c")


@pytest.mark.parametrize("order", ["one two", "two one", "two one two", "two three one"])
def test_a_bundle_called_model(tmp_path: Path, runtime: Path, order: str) -> None:
    """Its names are its own, wherever its header stands; no short name of another is there."""
    folders = both(tmp_path, "model", "rnet")
    write(programs.counter("cpu"), tmp_path / "three" / "other")
    names = {"one": "model", "two": "rnet", "three": "other"}
    headers = "".join(f'#include "{n}/{names[n]}/model.h"\n' for n in order.split())
    text = (
        "if (MODEL_INPUT_COUNT != 2 || RNET_INPUT_COUNT != 1) return 1;"
        "if (MODEL_KERNELS != &model_kernels || RNET_KERNELS != &rnet_kernels) return 2;"
        'return strcmp(MODEL_INPUT_B_0_NAME, "b:0") || strcmp(MODEL_PLAN, model_kernels.plan);'
    )
    linked(tmp_path, folders, headers, text, runtime, "c")
    with pytest.raises(AssertionError, match="MODEL_STATE_MEMORY"):
        linked(tmp_path, folders, headers, "return MODEL_STATE_MEMORY;", runtime, "c")


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("pnet", "PNET"),
        ("Face net-v2", "FACE_NET_V2"),
        ("2d", "MODEL_2D"),
        ("te", "MODEL_TE"),
        ("te_net", "MODEL_TE_NET"),
        ("tinyedge", "MODEL_TINYEDGE"),
        ("model-input", "MODEL_MODEL_INPUT"),
        ("model_state_2", "MODEL_MODEL_STATE_2"),
        ("model_inputs", "MODEL_INPUTS"),
        ("tensor", "TENSOR"),
        ("\u732b", "MODEL"),
    ],
)
def test_prefixes(name: str, prefix: str) -> None:
    assert build.c_bundle.prefix_of(name) == prefix


def test_the_name_of_an_export(tmp_path: Path) -> None:
    def export(**options: Any) -> str:
        one = {"x": np.ones(4, np.float32)}
        out = tinyedge.export_function(
            lambda x: x + x, one, target="cpu", out=tmp_path / "net.tinyedge", **options
        )
        return (out / "model.h").read_text("ascii")

    assert "#define NET_INPUT_X_BYTES 16\n" in export()
    assert "#define face_INPUT" not in export(name="face")
    assert "#define FACE_INPUT_X_BYTES 16\n" in export(name="face")
    with pytest.raises(tinyedge.InputError) as caught:
        export(name="2 b")
    assert caught.value.id == "option.name"
