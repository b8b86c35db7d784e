"""The C runtime's OpenCL backend: what it computes, what it asks of the driver, what it refuses."""

from __future__ import annotations

import ctypes as c
import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import opencl as engines
from tests.runtimes_c import opencl
from tests.runtimes_c.conftest import write
from tests.runtimes_c.library import (
    INPUTS,
    LOG,
    OUTPUTS,
    Cache,
    Context,
    Logger,
    OpenCl,
    ProfileInfo,
    RuntimeFailure,
    tensor,
)
from tests.runtimes_c.opencl import OpenclLibrary, Shim
from tests.runtimes_c.runs import RUNS
from tests.runtimes_c.test_resources import Memory
from tests.runtimes_c.test_runtime import cases, check_from_anywhere, floats, refused, same
from tests.targets import programs
from tests.targets.test_qcom_device import images
from tinyedge.core.program.device import Device
from tinyedge.core.program.program import Image, Launch, Program
from tinyedge.core.program.replay import Replay

ONES = np.ones((4, 64), np.float32)
BOTH = {"a": ONES, "b:0": ONES}


Library = Callable[..., OpenclLibrary]


@pytest.fixture
def library(opencl_runtime: Path, shim: Shim, tmp_path: Path) -> Library:
    """Writes a program's bundle and opens it."""

    def make(program: Program, goldens: tuple[Any, ...] = ()) -> OpenclLibrary:
        bundle = write(program, tmp_path / f"bundle{len(list(tmp_path.iterdir()))}", goldens)
        return OpenclLibrary(bundle, opencl_runtime, shim.file)

    return make


# --- what it computes ---------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [False, True], ids=["plain", "profile"])
@pytest.mark.parametrize("name", RUNS)
def test_runs(library: Library, cpu_device: Device, name: str, profile: bool) -> None:
    """Equal to Python's replay on the cpu, to the bit."""
    make, runs = RUNS[name]
    context = Context(library(make("qcom")), profile=profile)
    with Replay(make("cpu"), cpu_device) as replay:
        for entry, inputs in runs:
            same(context.run(inputs, entry), replay.run(inputs, entry))
    context.close()


def pixels() -> Any:
    whole = np.arange(3 * 64 * 4).reshape(3, 64, 4)[:, :5].astype(np.float32) / 2
    return np.concatenate([whole[:, 1:], np.zeros((3, 1, 4), np.float32)], 1)


@pytest.mark.parametrize("unified", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_images(library: Library, shim: Shim, dtype: str, unified: int) -> None:
    """Pixels come from the weight's bytes, row by row; outside of an image is zero."""
    shim.start((opencl.UNIFIED_MEMORY, unified))
    context = Context(library(images(dtype)))
    for _ in range(2):
        same(context.run({}), {"y": pixels()})
    context.close()


def tall(dtype: str, width: int, height: int, gap: int) -> Program:
    """The pixels of a weight with rows of another size than the pieces in which it is read."""
    program = images(dtype)
    pitch = (width + gap) * 4 * np.dtype(dtype).itemsize
    count = height * pitch // np.dtype(dtype).itemsize + 6
    values = (np.arange(count) % 2039).astype(dtype)
    values = values[: values.size - values.size % (4 // np.dtype(dtype).itemsize)]
    weight = replace(
        program.weights[0], shape=values.shape, content=values.view(np.uint8), bytes=values.nbytes
    )
    size = width * height * 16
    back = program.kernels[1].source.replace("y * 5", f"y * {width}")
    back = back.replace("get_local_id(0)", "get_global_id(0)").replace(
        "work_group_size(5", "work_group_size(1"
    )
    kernel = replace(program.kernels[1], source=back, workgroup=(1, 1, 1))
    (entry,) = program.entries
    arena = -(-size // 256) * 256
    return replace(
        program,
        arenas=(replace(program.arenas[0], bytes=arena),),
        weights=(weight,),
        buffers=(
            replace(program.buffers[0], bytes=values.nbytes),
            replace(program.buffers[2], offset=0, bytes=size),
        ),
        outputs=(replace(program.outputs[0], shape=(height, width, 4), buffer=1),),
        kernels=(kernel,),
        entries=(replace(entry, steps=(Launch(0, (0, 1), (width, height, 1)),)),),
        images=(Image(0, dtype, width, height, pitch),),
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("width", "height", "gap"), [(3, 5000, 0), (37, 300, 27), (5000, 3, 120), (64, 129, 0)]
)
def test_images_of_weights(library: Library, dtype: str, width: int, height: int, gap: int) -> None:
    """Rows shorter and longer than the pieces in which a file is read, with gaps and without."""
    program = tall(dtype, width, height, gap)
    data = program.weights[0].data
    assert data is not None
    values = data.view(dtype)[: height * (width + gap) * 4].reshape(height, width + gap, 4)
    context = Context(library(program))
    same(context.run({}), {"y": values[:, :width].astype(np.float32)})
    context.close()


def test_images_over_buffers(opencl_runtime: Path, shim: Shim, tmp_path: Path) -> None:
    """Intel's runtime has them: the same pixels, and no image has memory of its own."""
    environment = engines.intel_environment(tmp_path)
    for dtype in ("float32", "float16"):
        write(images(dtype), tmp_path / dtype)
    command = (sys.executable, "-m", "tests.runtimes_c.test_opencl", opencl_runtime, shim.file)
    said = engines.run([*map(str, command), str(tmp_path)], environment)
    assert said.splitlines()[-1] == "2 images over buffers agree", said


def over_buffers(runtime: Path, shim: Shim, folder: Path) -> None:
    for dtype in ("float32", "float16"):
        shim.start()
        context = Context(OpenclLibrary(folder / dtype, runtime, shim.file))
        same(context.run({}), {"y": pixels()})
        assert shim.count("clCreateImage") == 2
        assert shim.count("clEnqueueWriteImage") == 0
        context.close()
        shim.check()
        # The same without them.
        shim.start((opencl.IMAGE_PITCH_ALIGNMENT, 0))
        context = Context(OpenclLibrary(folder / dtype, runtime, shim.file))
        same(context.run({}), {"y": pixels()})
        assert shim.count("clEnqueueWriteImage") > 0
        context.close()
        shim.check()
        # With other rows than asked for.
        shim.start((opencl.IMAGE_ROW_PITCH, 128))
        failure = refusal(OpenclLibrary(folder / dtype, runtime, shim.file))
        assert failure.id == "device.image" and "rows of 128 bytes" in str(failure)
        shim.check()
    print("2 images over buffers agree")


def test_self_test(library: Library, cpu_device: Device) -> None:
    program = programs.counter("cpu")
    with Replay(program, cpu_device) as replay:
        made = cases(program, replay)
    opened = library(programs.counter("qcom"), made)
    model = opened.open()
    report = opened.self_test(model)
    assert (report.cases, report.outputs, report.wrong, report.distinct) == (2, 2, 0, 0)
    opened.c.te_close(model)


def test_a_bundle_from_anywhere(library: Library, cpu_device: Device) -> None:
    """Weights and kernels are read by te_create."""
    program = programs.counter("cpu")
    with Replay(program, cpu_device) as replay:
        made = cases(program, replay)
    check_from_anywhere(library(programs.counter("qcom"), made))


def test_profile(library: Library) -> None:
    context = Context(library(programs.addition("qcom")), profile=True)
    for _ in range(3):
        context.run(BOTH)
    rows = []
    for index in range(context.library.c.te_profile_count(context.context)):
        info = ProfileInfo()
        assert context.library.c.te_profile(context.context, index, c.byref(info))
        assert info.nanoseconds > 0
        rows.append((info.kernel, info.nodes, info.runs))
    assert rows == [(b"add", b"Add_0", 3), (b"copy", b"", 3)]
    context.close()


# --- runs that go on ----------------------------------------------------------------------------


def long_run(iterations: int) -> Program:
    """One launch that takes long."""
    program = programs.addition("qcom")
    spin = f"float v = b0[i]; for (int k = 0; k < {iterations}; k++) {{ v = sin(v + b1[i]); }}"
    kernel = programs.kernel("qcom", "add", "wwrw", f"{spin} b3[i] = v;")
    return replace(program, kernels=(kernel,))


def test_a_run_goes_on_after_a_timeout(library: Library) -> None:
    context = Context(library(long_run(200_000)))
    call = context.library.c
    result = np.zeros((4, 64), np.float32)
    binding = tensor(result)
    context.bind(BOTH)
    context.check(call.te_bind_output(context.context, 0, c.byref(binding)))
    context.check(call.te_run(context.context, 0))  # drivers compile late
    start = time.monotonic()
    context.check(call.te_submit(context.context, 0))
    submitted = time.monotonic() - start
    result[:] = 0
    refused("run.timeout", lambda: context.check(call.te_wait(context.context, c.c_int64(0))))
    refused("run.timeout", lambda: context.check(call.te_wait(context.context, c.c_int64(1))))
    assert not result.any()
    # Nothing else may be asked meanwhile, but the next inputs may be bound.
    refused("api.argument", lambda: context.check(call.te_submit(context.context, 0)))
    refused("api.argument", lambda: context.shape(OUTPUTS, 0))
    refused("api.argument", lambda: context.check(call.te_reset(context.context)))
    context.bind(BOTH)
    context.check(call.te_wait(context.context, c.c_int64(600_000)))
    assert result.all() and submitted < time.monotonic() - start
    refused("api.argument", lambda: context.check(call.te_wait(context.context, c.c_int64(0))))
    context.check(call.te_submit(context.context, 0))
    context.close()  # also while one goes on


def test_two_contexts_in_two_threads(library: Library) -> None:
    opened = library(programs.addition("qcom"))
    wrong = []

    def use(seed: int) -> None:
        context = Context(opened)
        for run in range(50):
            a, b = floats(4, 64, seed=seed + run), floats(4, 64, seed=run)
            got = context.run({"a": a, "b:0": b})["c"]
            expected = a + b + np.arange(256, dtype=np.float32).reshape(4, 64)
            if got.tobytes() != expected.tobytes():
                wrong.append(run)
        context.close()

    threads = [threading.Thread(target=use, args=(seed,)) for seed in (0, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- memory and queues of the caller ------------------------------------------------------------


@pytest.fixture
def cl() -> Any:
    return pytest.importorskip("pyopencl")


def handle(memory: Any, array: Any, offset: int = 0) -> Any:
    """A binding of a cl_mem with an array's shape."""
    binding = tensor(np.empty(array.shape, array.dtype))
    binding.data, binding.device, binding.offset = None, memory.int_ptr, offset
    binding.strides = None
    return binding


def test_memory_and_queue_of_the_caller(library: Library, cl: Any) -> None:
    device = cl.get_platforms()[0].get_devices()[0]
    theirs = cl.Context([device])
    queue = cl.CommandQueue(theirs)
    options = OpenCl(queue=queue.int_ptr)
    context = Context(library(programs.addition("qcom")), opencl=options)
    call = context.library.c
    a, b = floats(4, 64), floats(4, 64, seed=1)
    flags = cl.mem_flags.READ_WRITE
    source = cl.Buffer(theirs, flags, 256 + a.nbytes)
    out = cl.Buffer(theirs, flags, a.nbytes)
    cl.enqueue_copy(queue, source, a, dst_offset=256)
    context.bind({"b:0": b})
    for binding, bind, index in (
        (handle(source, a, 256), call.te_bind_input, context.find(INPUTS, "a")),
        (handle(out, a), call.te_bind_output, context.find(OUTPUTS, "c")),
    ):
        context.check(bind(context.context, index, c.byref(binding)))
    context.check(call.te_run(context.context, 0))
    got = np.empty_like(a)
    cl.enqueue_copy(queue, got, out)
    expected = a + b + np.arange(256, dtype=np.float32).reshape(4, 64)
    assert got.tobytes() == expected.tobytes()
    # The second half, read after the run.
    half = floats(2, 64)
    binding = handle(out, half)
    context.check(call.te_read_output(context.context, 1, c.byref(binding)))
    cl.enqueue_copy(queue, got, out)
    assert got[:2].tobytes() == expected[2:].tobytes()
    # Too small, strided, of another dtype than it is stored in.
    binding = handle(out, a, 4)
    refused(
        "api.argument",
        lambda: context.check(call.te_read_output(context.context, 0, c.byref(binding))),
    )
    binding = tensor(np.empty((4, 128), np.float32)[:, ::2])
    binding.data, binding.device = None, out.int_ptr
    refused(
        "run.dtype",
        lambda: context.check(call.te_read_output(context.context, 0, c.byref(binding))),
    )
    context.close()
    other = Context(library(programs.ports("qcom")), opencl=options)
    inputs = {p.name: (np.arange(5) + 3).astype(p.dtype) for p in programs.ports("cpu").inputs}
    other.run(inputs)
    binding = handle(out, np.empty(5, np.int64))
    index = other.find(OUTPUTS, "out_int64_int32")
    refused(
        "run.dtype",
        lambda: other.check(call.te_read_output(other.context, index, c.byref(binding))),
    )
    other.close()


def test_context_of_the_caller(library: Library, cl: Any) -> None:
    theirs = cl.Context([cl.get_platforms()[0].get_devices()[0]])
    opened = library(programs.addition("qcom"))
    context = Context(opened, opencl=OpenCl(context=theirs.int_ptr))
    assert context.run(BOTH)["c"][0, 0] == 2
    context.close()
    wrong = OpenCl(context=theirs.int_ptr, device=b"no such")
    model = opened.open()
    refused("device.adapter", lambda: opened.create(model, opened.create_options(opencl=wrong)))
    opened.c.te_close(model)


def test_a_queue_out_of_order_is_refused(library: Library, cl: Any) -> None:
    device = cl.get_platforms()[0].get_devices()[0]
    out_of_order = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    queue = cl.CommandQueue(cl.Context([device]), properties=out_of_order)
    opened = library(programs.addition("qcom"))
    model = opened.open()
    options = opened.create_options(opencl=OpenCl(queue=queue.int_ptr))
    refused("api.argument", lambda: opened.create(model, options))
    plain = cl.CommandQueue(cl.Context([device]))
    options = opened.create_options(opencl=OpenCl(queue=plain.int_ptr), profile=True)
    refused("api.argument", lambda: opened.create(model, options))
    opened.c.te_close(model)


# --- what it asks of the driver -----------------------------------------------------------------


def test_a_run_only_enqueues(library: Library, shim: Shim) -> None:
    """It allocates nothing, either."""
    memory = Memory()
    opened = library(programs.addition("qcom"))
    context: Context = Context.__new__(Context)
    context.library, context.bound = opened, {}
    context.model = opened.open(opened.open_options(memory.allocator))
    context.context = opened.create(context.model)
    call, allocations = opened.c, len(memory.sizes)
    results = [np.zeros((4, 64), np.float32), np.zeros((2, 64), np.float32)]
    bindings = [tensor(array) for array in results]
    for index, binding in enumerate(bindings):
        context.check(call.te_bind_output(context.context, index, c.byref(binding)))
    context.bind(BOTH)
    shim.start()
    for _ in range(10):
        context.check(call.te_run(context.context, 0))
    assert shim.called() <= opencl.IN_A_RUN
    assert shim.count("clEnqueueNDRangeKernel") == shim.count("clEnqueueCopyBuffer") == 10
    # Two inputs and two outputs are mapped; a run waits twice: for its inputs' memory, its end.
    assert shim.count("clEnqueueMapBuffer") == shim.count("clEnqueueUnmapMemObject") == 40
    assert shim.count("clFinish") == shim.count("clWaitForEvents") == 10
    assert shim.count("clEnqueueMarkerWithWaitList") == shim.count("clReleaseEvent") == 10
    assert shim.count("clEnqueueWriteBuffer") == 0
    assert results[0][0, 0] == 2
    assert len(memory.sizes) == allocations
    context.close()
    assert not memory.live


def test_sizes_are_written_when_they_change(library: Library, shim: Shim) -> None:
    context = Context(library(programs.symbolic("qcom")))
    shim.start()
    for n, written in ((8, 1), (8, 1), (3, 2), (3, 2), (8, 3)):
        context.run({"x": floats(n, 16), "bias": floats(16)})
        assert shim.count("clEnqueueWriteBuffer") == written
    assert shim.called() <= opencl.IN_A_RUN
    context.close()


def test_a_program_that_is_cached_is_not_compiled(
    library: Library, shim: Shim, tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    options = OpenCl(cache_folder=str(folder).encode())
    opened = library(programs.addition("qcom"))

    def compiled() -> int:
        shim.start()
        context = Context(opened, opencl=options)
        assert context.run(BOTH)["c"][0, 0] == 2
        context.close()
        assert shim.count("clBuildProgram") - shim.count("clCreateProgramWithSource") in (0, 1)
        return shim.count("clCreateProgramWithSource")

    assert compiled() == 1
    (file,) = folder.iterdir()
    sound = file.read_bytes()
    assert compiled() == 0
    for damaged in (b"", sound[:63], sound[:64], sound[:-1], sound + b"x", sound[:-9] + sound[-8:]):
        file.write_bytes(damaged)
        assert compiled() == 1
        assert [path.read_bytes() for path in folder.iterdir()] == [sound]
        assert compiled() == 0
    for position in (0, 63, 64, len(sound) // 2, len(sound) - 1):
        changed = bytearray(sound)
        changed[position] ^= 1
        file.write_bytes(changed)
        assert compiled() == 1
        assert compiled() == 0
    # Sound, but nothing that the driver takes.
    file.write_bytes(hashlib.sha256(b"no binary").hexdigest().encode() + b"no binary")
    assert compiled() == 1
    assert compiled() == 0
    # A link, a folder that cannot be written.
    file.unlink()
    file.symlink_to("/dev/null")
    assert compiled() == 1
    file.unlink()
    file.mkdir()
    assert compiled() == 1
    assert [path.name for path in folder.iterdir()] == [file.name]


def test_what_a_cached_program_depends_on(library: Library, shim: Shim, tmp_path: Path) -> None:
    program = programs.addition("qcom")
    (kernel,) = program.kernels
    folder = tmp_path / "cache"
    for number, other in enumerate(
        (
            program,
            replace(program, options={"build": "-cl-std=CL1.2"}),
            replace(program, kernels=(replace(kernel, source=kernel.source + "\n"),)),
            replace(program, prelude="// another\n"),
        )
    ):
        context = Context(library(other), opencl=OpenCl(cache_folder=str(folder).encode()))
        context.close()
        assert len(list(folder.iterdir())) == number + 1
    shim.start((opencl.PROFILE, int.from_bytes(b"FULL_PRO", "little")))


READ = c.CFUNCTYPE(c.c_int64, c.c_void_p, c.c_char_p, c.c_void_p, c.c_size_t)
WRITE = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_char_p, c.c_void_p, c.c_size_t)


def test_a_cache_of_the_callers(library: Library, shim: Shim) -> None:
    kept: dict[bytes, bytes] = {}

    def read(_: int, key: bytes, into: int, room: int) -> int:
        content = kept.get(key)
        if content is None:
            return -1
        if into:
            c.memmove(into, content, min(room, len(content)))
        return len(content)

    def store(_: int, key: bytes, data: int, size: int) -> int:
        kept[key] = c.string_at(data, size)
        return 0

    functions = READ(read), WRITE(store)
    cache = Cache(*(c.cast(function, c.c_void_p) for function in functions), None)
    opened = library(programs.addition("qcom"))
    for number in (1, 0):
        shim.start()
        Context(opened, opencl=OpenCl(cache=cache)).close()
        assert shim.count("clCreateProgramWithSource") == number
    ((key, content),) = kept.items()
    assert len(key) == 64 and len(content) > 64


def test_a_cache_that_keeps_nothing_is_told(library: Library, tmp_path: Path) -> None:
    """Once for each context that had to compile; and nothing fails."""
    said: list[tuple[str, str]] = []

    def log(_: int, status: int, text: bytes) -> None:
        said.append((opened.id(status), text.decode()))

    opened = library(programs.addition("qcom"))
    logger = Logger(LOG(log), None)
    model = opened.open(opened.open_options(logger=logger))
    (tmp_path / "file").write_text("")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)  # of what others can write nothing is loaded either
    places = (("file/cache", 1), ("x" * 5000, 1), ("folder", 0), ("folder", 0), ("open", 1))
    for folder, notes in places:
        said.clear()
        options = OpenCl(cache_folder=str(tmp_path / folder).encode())
        opened.c.te_destroy(opened.create(model, opened.create_options(opencl=options)))
        told = [text for id, text in said if id == "device.cache"]
        assert len(told) == notes and all("will be compiled again" in text for text in told)
    assert list((tmp_path / "open").iterdir()) == []
    assert len(list((tmp_path / "folder").iterdir())) == 1
    (tmp_path / "folder").chmod(0o722)
    said.clear()
    options = OpenCl(cache_folder=str(tmp_path / "folder").encode())
    opened.c.te_destroy(opened.create(model, opened.create_options(opencl=options)))
    assert "device.cache" in {id for id, _ in said}
    opened.c.te_close(model)


def test_measured_memory_is_what_is_taken(library: Library, shim: Shim) -> None:
    opened = library(programs.counter("qcom"))
    measured = opened.measure()
    memory = Memory()
    model = opened.open(opened.open_options(memory.allocator))
    assert sum(memory.live.values()) == measured.manifest
    assert measured.weights == measured.arenas == 0
    context = opened.create(model)
    assert sum(memory.live.values()) == measured.manifest + measured.context
    assert measured.device == programs.ARENA + 256
    opened.c.te_destroy(context)
    opened.c.te_close(model)
    assert not memory.live


# --- what it refuses ----------------------------------------------------------------------------


def refusal(library: OpenclLibrary, **options: Any) -> RuntimeFailure:
    """Why no context can be made; nothing of it is left."""
    memory = Memory()
    model = library.open(library.open_options(memory.allocator))
    kept = len(memory.live)
    with pytest.raises(RuntimeFailure) as caught:
        library.create(model, library.create_options(**options))
    assert len(memory.live) == kept
    library.c.te_close(model)
    assert str(caught.value).startswith(f"{caught.value.id}: ")
    return caught.value


def test_no_driver(library: Library) -> None:
    opened = library(programs.addition("qcom"))
    failure = refusal(opened, opencl=OpenCl(library=b"/nowhere/libOpenCL.so"))
    assert failure.id == "device.missing"
    assert "/nowhere/libOpenCL.so cannot be loaded" in str(failure)
    failure = refusal(opened, opencl=OpenCl(library=b"libm.so.6"))
    assert failure.id == "device.missing" and "no clGetPlatformIDs" in str(failure)


def test_no_device(library: Library, shim: Shim) -> None:
    opened = library(programs.addition("qcom"))
    shim.fail(1, -1001)  # what the loader says without a driver
    assert refusal(opened).id == "device.missing"


def test_devices_by_number_and_name(library: Library) -> None:
    opened = library(programs.addition("qcom"))
    model = opened.open()
    for name in (None, b"", b"0", b"portable computing", b"PTHREAD"):
        options = opened.create_options(opencl=OpenCl(device=name))
        opened.c.te_destroy(opened.create(model, options))
    opened.c.te_close(model)
    for name in (b"7", b"Adreno", b"00000000000000000007"):
        failure = refusal(opened, opencl=OpenCl(device=name))
        assert failure.id == "device.adapter"
        assert f"no OpenCL device is called {name.decode()}" in str(failure)
        assert "Portable Computing Language" in str(failure)


TOO_SMALL = [
    ("MAX_MEM_ALLOC_SIZE", 4096, "binding_bytes|buffer_bytes"),
    ("MAX_WORK_GROUP_SIZE", 4, "invocations of 5, the device has 4"),
    ("IMAGE2D_MAX_WIDTH", 4, "image_width of 5"),
    ("IMAGE2D_MAX_HEIGHT", 2, "image_height of 3"),
    ("IMAGE_SUPPORT", 0, "not images"),
    ("GLOBAL_MEM_SIZE", 2**14, "not enough memory"),
    ("MAX_PARAMETER_SIZE", 16, "kernels of so many arguments"),
    ("ENDIAN_LITTLE", 0, "not little-endian numbers"),
    ("PROFILE", int.from_bytes(b"EMBEDDED", "little"), "not the full profile"),
]


@pytest.mark.parametrize(("name", "value", "words"), TOO_SMALL, ids=[row[0] for row in TOO_SMALL])
def test_a_device_that_is_too_small(
    library: Library, shim: Shim, name: str, value: int, words: str
) -> None:
    opened = library(images("float32"))
    shim.start((getattr(opencl, name), value))
    failure = refusal(opened)
    assert failure.id == "device.limits"
    assert any(word in str(failure) for word in words.split("|"))


def test_a_device_with_other_places(library: Library, shim: Shim) -> None:
    opened = library(programs.addition("qcom"))
    shim.start((opencl.MEM_BASE_ADDR_ALIGN, 2**16))
    failure = refusal(opened)
    assert failure.id == "device.limits"
    assert "buffers begin at multiples of 65536 bits" in str(failure)


def test_more_threads_than_a_kernel_can_have(library: Library) -> None:
    program = programs.addition("qcom")
    (kernel,) = program.kernels
    few = kernel.source.replace("reqd_work_group_size(64, 1, 1)", "reqd_work_group_size(2, 1, 1)")
    odd = replace(program, kernels=(replace(kernel, source=few, workgroup=(1 << 13, 1, 1)),))
    assert refusal(library(odd)).id == "device.limits"
    (entry,) = program.entries
    wide = replace(entry, steps=(Launch(0, (0, 1, 3, 2), (2**26, 1, 1)),))
    context = Context(library(replace(program, entries=(wide,))))
    refused("device.counts", lambda: context.run(BOTH))
    context.close()


def test_kernels_that_do_not_compile(library: Library) -> None:
    program = programs.addition("qcom")
    (kernel,) = program.kernels
    wrong = replace(kernel, source=kernel.source.replace("b0[i] + ", "no_such + "))
    opened = library(replace(program, kernels=(wrong,)))
    failure = refusal(opened)
    assert failure.id == "device.compile"
    assert "error" in str(failure) and "undeclared identifier 'no_such'" in str(failure)
    lines: list[str] = []
    log = LOG(lambda user, status, text: lines.append(text.decode()))
    model = opened.open(opened.open_options(logger=Logger(log, None)))
    refused("device.compile", lambda: opened.create(model))
    assert any("no_such" in line for line in lines[1:-1]) and all("\n" not in x for x in lines)
    opened.c.te_close(model)


def test_only_known_build_options(library: Library) -> None:
    program = programs.addition("qcom")
    known = replace(program, options={"build": "-cl-std=CL1.2 -cl-fast-relaxed-math"})
    context = Context(library(known))
    assert context.run(BOTH)["c"][0, 0] == 2
    context.close()
    for build_options in ("-I /etc -cl-std=CL1.2", "-cl-std=CL1.2 -D x", "-cl-std=CL1.2x"):
        failure = refusal(library(replace(program, options={"build": build_options})))
        assert failure.id == "device.compile"


def test_a_program_without_a_kernel(library: Library) -> None:
    program = programs.addition("qcom")
    (kernel,) = program.kernels
    other = replace(kernel, source=kernel.source.replace("void add(", "void subtract("))
    failure = refusal(library(replace(program, kernels=(other,))))
    assert failure.id == "device.kernel" and "no kernel add" in str(failure)
    fewer = replace(
        kernel, source=kernel.source.replace("__global float *b3", "__global float *b3, int x")
    )
    failure = refusal(library(replace(program, kernels=(fewer,))))
    assert failure.id == "device.kernel" and "takes 5 arguments" in str(failure)


@pytest.mark.parametrize("listed", [0, 1])
def test_a_buffer_where_a_kernel_takes_an_image(library: Library, shim: Shim, listed: int) -> None:
    """As Python refuses it, before the driver sees it: PoCL would crash."""
    program = images("float32")
    failure = refusal(library(replace(program, images=program.images[:listed])))
    assert failure.id == "device.image" and "a buffer for an image" in str(failure)
    shim.check()


def test_an_image_where_a_kernel_takes_a_buffer(library: Library, tmp_path: Path) -> None:
    program = images("float32")
    source = program.kernels[0].source.replace("__read_only image2d_t a", "__global float4 *a")
    source = source.replace("read_imagef(a, s, (int2)(x + 1, y))", "a[x]")
    kernels = (replace(program.kernels[0], source=source), program.kernels[1])
    opened = library(replace(program, kernels=kernels))
    folder = str(tmp_path / "cache").encode()
    for _ in range(2):  # compiled, then cached
        failure = refusal(opened, opencl=OpenCl(cache_folder=folder))
        assert failure.id == "device.image" and "kernel shift" in str(failure)


def test_the_parameters_are_those_of_the_kernel(library: Library) -> None:
    """Not those of a function whose name ends, or begins, like its."""
    program = images("float32")
    before = "int my_shift(int x) { return x; }\nint shift_1 (int x) { return x; }\n"
    source = program.kernels[0].source.replace("void shift(", "void shift\n (")
    kernels = (replace(program.kernels[0], source=before + source), program.kernels[1])
    context = Context(library(replace(program, kernels=kernels)))
    same(context.run({}), {"y": pixels()})
    context.close()


def test_files_changed_since_the_bundle_was_opened(library: Library) -> None:
    opened = library(programs.addition("qcom"))
    for name in ("kernels.cl", "weights-00000.bin"):
        path = opened.bundle / name
        content = path.read_bytes()
        for changed, id in (
            (bytes([content[0] ^ 1]) + content[1:], "bundle.file.hash"),
            (content + b"more", "bundle.file.size"),
            (None, "bundle.file.missing"),
        ):
            model = opened.open()
            path.unlink()
            if changed is not None:
                path.write_bytes(changed)
            refused(id, lambda model=model: opened.create(model))
            path.write_bytes(content)
            opened.c.te_close(model)


# --- when something fails -----------------------------------------------------------------------


def use(library: OpenclLibrary, name: str, allocator: Any = None, **options: Any) -> None:
    """Everything that calls the driver."""
    make = dict(RUNS, images=(images, [("main", {})]))[name]
    model = library.open(library.open_options(allocator))
    context: Context = Context.__new__(Context)
    context.library, context.model, context.bound = library, model, {}
    try:
        context.context = library.create(model, library.create_options(**options))
        try:
            for entry, inputs in make[1]:
                context.run(inputs, entry)
            if name == "counter":
                context.set_state(0, context.get_state(0))
                context.check(library.c.te_reset(context.context))
        finally:
            library.c.te_destroy(context.context)
    finally:
        library.c.te_close(model)


@pytest.mark.parametrize("profile", [False, True], ids=["plain", "profile"])
@pytest.mark.parametrize("name", ["counter", "symbolic", "images"])
def test_every_call_of_the_driver_may_fail(
    library: Library, shim: Shim, tmp_path: Path, name: str, profile: bool
) -> None:
    """Whichever it is: a clear error and everything given back, or it did not matter."""
    program = images("float32") if name == "images" else RUNS[name][0]("qcom")
    opened = library(program)
    options = {"profile": profile, "opencl": OpenCl(cache_folder=str(tmp_path / "cache").encode())}
    shim.fail(0, 0)
    use(opened, name, **options)
    calls, failed = shim.calls(), 0
    assert calls > 60
    for number in range(1, calls + 1):
        code = (opencl.NO_MEMORY, opencl.OUT_OF_RESOURCES, opencl.INVALID_VALUE)[number % 3]
        shim.fail(number, code)
        try:
            use(opened, name, **options)
        except RuntimeFailure as failure:
            failed += 1
            memory = code != opencl.INVALID_VALUE
            expected = {"device.memory" if memory else "device.driver"}
            # What the device does not say of itself counts as zero.
            if "failed with" not in str(failure):
                expected = {"device.limits", "device.missing", "device.compile", "api.argument"}
            assert failure.id in expected, (number, str(failure))
        shim.fail(0, 0)
        shim.check()
    assert failed > calls / 3


def test_every_allocation_may_fail(library: Library, tmp_path: Path) -> None:
    opened = library(programs.counter("qcom"))
    # A cached program is left out where there is no memory for it.
    options = {"opencl": OpenCl(cache_folder=str(tmp_path / "cache").encode())}
    sound = Memory()
    use(opened, "counter", sound.allocator)
    assert not sound.live
    assert len(sound.sizes) > 5
    for failing in range(len(sound.sizes)):
        memory = Memory(failing)
        refused("device.memory", lambda m=memory: use(opened, "counter", m.allocator))
        assert not memory.live, failing
    for failing in range(len(sound.sizes) + 3):
        memory = Memory(failing)
        try:
            use(opened, "counter", memory.allocator, **options)
        except RuntimeFailure as failure:
            assert failure.id == "device.memory"
        assert not memory.live, failing


def resident() -> int:
    """Bytes of memory that this process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["addition", "counter", "repeat"])
def test_ten_thousand_runs_do_not_grow(library: Library, name: str) -> None:
    make, runs = RUNS[name]
    context = Context(library(make("qcom")))
    (_, inputs) = runs[0]

    def many(count: int) -> int:
        context.bind(inputs)
        for _ in range(count):
            context.check(context.library.c.te_run(context.context, 0))
        return resident()

    before = many(1000)
    assert many(10_000) - before < 2**20
    context.close()


if __name__ == "__main__":
    over_buffers(Path(sys.argv[1]), Shim(Path(sys.argv[2])), Path(sys.argv[3]))
