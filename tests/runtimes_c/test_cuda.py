"""The C runtime's CUDA backend: what it computes, what it asks of the driver, what it refuses."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cuda.shim import Shim
from tests.runtimes_c import build, cuda
from tests.runtimes_c.cuda import CudaLibrary, FakeCuda
from tests.runtimes_c.library import (
    OUTPUTS,
    Context,
    Cuda,
    PortInfo,
    ProfileInfo,
    RuntimeFailure,
    tensor,
)
from tests.runtimes_c.runs import RUNS, growing, nested
from tests.runtimes_c.test_resources import Memory
from tests.runtimes_c.test_runtime import cases, floats, refused, same
from tests.targets import programs
from tinyedge.core.program.device import Device
from tinyedge.core.program.program import Launch, Program, Symbol
from tinyedge.core.program.replay import Replay

Library = Callable[[Program], CudaLibrary]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, kernel_cache: Path) -> FakeCuda:
    folder = tmp_path_factory.mktemp("cuda")
    driver = cuda.built_driver(folder / "driver")
    return FakeCuda(driver, cuda.built_runtime(folder), Shim(kernel_cache))


@pytest.fixture(params=["discrete", "integrated"])
def fake(built: FakeCuda, request: pytest.FixtureRequest) -> Iterator[FakeCuda]:
    """Each kind of device, which afterwards was used well."""
    device = replace(built, integrated=request.param == "integrated")
    yield device
    device.check()


@pytest.fixture
def discrete(built: FakeCuda) -> Iterator[FakeCuda]:
    yield built
    built.check()


@pytest.fixture(params=["discrete", "integrated", "real"])
def library(built: FakeCuda, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Library]:
    """Writes a program's bundle and opens it: on a GPU, too, where there is one."""
    if request.param == "real":
        if missing := cuda.missing_gpu():
            pytest.skip(missing)
        architecture = cuda.gpu_architecture()

        def on_gpu(program: Program) -> CudaLibrary:
            ready = cuda.really_compiled(program, architecture)
            return CudaLibrary(cuda.write(ready, tmp_path / "bundle"), built.runtime, None)

        yield on_gpu
        return
    device = replace(built, integrated=request.param == "integrated")
    yield lambda program: device.open(cuda.write(cuda.compiled(program), tmp_path / "bundle"))
    device.check()


# --- what it computes ---------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [False, True], ids=["graphs", "profile"])
@pytest.mark.parametrize("name", RUNS)
def test_runs(library: Library, cpu_device: Device, name: str, profile: bool) -> None:
    """Equal to Python's replay on the cpu, to the bit."""
    make, runs = RUNS[name]
    context = Context(library(make("cuda")), profile=profile)
    with Replay(make("cpu"), cpu_device) as replay:
        for entry, inputs in runs:
            same(context.run(inputs, entry), replay.run(inputs, entry))
    context.close()


def test_bound_outputs_and_slices(library: Library, cpu_device: Device) -> None:
    inputs = {"a": floats(4, 64), "b:0": floats(4, 64, seed=1)}
    context = Context(library(programs.addition("cuda")))
    call = context.library.c
    c_out, half = np.zeros((4, 64), np.float32), np.zeros((2, 64), np.float32)
    for number, array in enumerate((c_out, half)):
        binding = tensor(array)
        context.check(call.te_bind_output(context.context, number, c.byref(binding)))
    with Replay(programs.addition("cpu"), cpu_device) as replay:
        expected = replay.run(inputs)
        for _ in range(2):
            context.bind(inputs)
            context.check(call.te_run(context.context, 0))
            same({"c": c_out, "half": half}, expected)
            same({"tail": context.read_slice(0, 0, (1, 64))}, expected)
    context.close()


def test_states(library: Library) -> None:
    context = Context(library(programs.counter("cuda")))
    same({"": context.get_state(0)}, {"": np.full(64, 10, np.float32)})
    context.set_state(0, floats(64, seed=9))
    same(context.run({}, "peek"), {"total": floats(64, seed=9)})
    x = floats(64)
    same(context.run({"x": x}), {"total": floats(64, seed=9) + x})
    same({"": context.get_state(0)}, {"": floats(64, seed=9) + x})
    context.check(context.library.c.te_reset(context.context))
    assert (context.run({}, "peek")["total"] == 10).all()
    context.close()


def two_states(target: str) -> Program:
    """Two states, of which one begins as zeros and the other as ten and then zeros."""
    program = programs.counter(target)
    (first,) = program.states
    second = replace(first, name="second", buffer=3, initial=-1)
    ten = programs.constant("ten", np.full(16, 10.0))
    return replace(
        program,
        states=(first, second),
        weights=(ten,),
        buffers=(*program.buffers, programs.place(3, 256)),
    )


def test_states_begin_as_they_are_told(library: Library) -> None:
    context = Context(library(two_states("cuda")))
    zeros = np.zeros(64, np.float32)
    ten = np.where(np.arange(64) < 16, np.float32(10), np.float32(0))
    for _ in range(2):
        for state, initial in enumerate((ten, zeros)):
            same({"": context.get_state(state)}, {"": initial})
        for state in (0, 1):  # the second one comes while the first may be on its way
            context.set_state(state, floats(64, seed=state))
        for state in (0, 1):
            same({"": context.get_state(state)}, {"": floats(64, seed=state)})
        context.check(context.library.c.te_reset(context.context))
    context.close()


def test_what_was_fetched_is_that_of_the_last_run(library: Library) -> None:
    context = Context(library(programs.counter("cuda")))
    call = context.library.c
    out = np.zeros(64, np.float32)
    binding = tensor(out)
    context.check(call.te_bind_output(context.context, 0, c.byref(binding)))
    ones = {"x": np.ones(64, np.float32)}
    assert (context.run(ones)["total"] == 11).all()
    assert (out == 11).all()
    context.check(call.te_bind_output(context.context, 0, None))
    assert (context.run(ones)["total"] == 12).all()
    assert (out == 11).all()
    context.close()


def test_a_wrong_value_spoils_no_later_run(library: Library) -> None:
    context = Context(library(programs.repeat("cuda")))
    beyond = {"x": floats(64), "n": np.array([2**40], np.int64)}
    refused("run.range", lambda: context.run(beyond))
    result = context.run({"x": floats(64), "n": np.array([2], np.int64)})
    same({"x_out": result["x_out"]}, {"x_out": floats(64) + np.float32(1) + np.float32(1)})
    context.close()


# --- what it asks of the driver -----------------------------------------------------------------


def written(program: Program, folder: Path, architectures: tuple[int, ...] = (87,)) -> Path:
    return cuda.write(cuda.compiled(program, architectures), folder)


FUNCTIONS = (
    *("cuGraphLaunch", "cuLaunchKernel", "cuMemcpyAsync", "cuMemcpyHtoD_v2", "cuMemsetD8Async"),
    *("cuGraphInstantiateWithFlags", "cuGraphExecKernelNodeSetParams", "cuGraphNodeSetEnabled"),
    *("cuGraphExecMemcpyNodeSetParams", "cuEventRecord", "cuEventSynchronize", "cuEventQuery"),
    *("cuStreamSynchronize", "cuMemAlloc_v2", "cuMemHostAlloc", "cuModuleLoadDataEx"),
)


class Counted:
    """Calls of the driver since it was made, without those that only choose the context."""

    def __init__(self, fake: FakeCuda) -> None:
        self._fake = fake
        self._before = {name: fake.calls(name) for name in FUNCTIONS}
        self._all = self._total()

    def _total(self) -> int:
        around = ("cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2")
        return self._fake.calls() - sum(map(self._fake.calls, around))

    def __call__(self) -> dict[str, int]:
        """Those that were called; all are known by name."""
        made = {name: self._fake.calls(name) - self._before[name] for name in FUNCTIONS}
        assert sum(made.values()) == self._total() - self._all
        return {name: count for name, count in made.items() if count}


def bind_outputs(context: Context) -> list[Any]:
    """Memory for all outputs at their greatest sizes, bound."""
    arrays = []
    while context.library.c.te_port(context.model, OUTPUTS, len(arrays), c.byref(PortInfo())):
        array = context.new(OUTPUTS, len(arrays))
        binding = tensor(array)
        binding.shape = None
        binding.strides = None
        number = len(arrays)
        context.check(context.library.c.te_bind_output(context.context, number, c.byref(binding)))
        arrays.append(array)
    return arrays


def test_a_run_is_one_launch_of_a_graph(fake: FakeCuda, tmp_path: Path) -> None:
    """And a copy for each input and output, but on a GPU that shares the host's memory."""
    context = Context(fake.open(written(programs.addition("cuda"), tmp_path / "bundle")))
    arrays = bind_outputs(context)
    context.bind({"a": floats(4, 64), "b:0": floats(4, 64)})
    for _ in range(3):
        count = Counted(fake)
        context.check(context.library.c.te_run(context.context, 0))
        copies = {} if fake.integrated else {"cuMemcpyAsync": 4}
        assert count() == {
            "cuGraphLaunch": 1,
            **copies,
            "cuEventRecord": 1,
            "cuEventSynchronize": 1,
        }
    assert fake.calls("cuMemAlloc_v2") == fake.calls("cuMemHostAlloc") == 1
    assert arrays[0].any()
    context.close()


def test_other_sizes_change_only_what_differs(fake: FakeCuda, tmp_path: Path) -> None:
    context = Context(fake.open(written(growing("cuda"), tmp_path / "bundle")))
    launched = {"cuGraphLaunch": 1, "cuEventRecord": 1, "cuEventSynchronize": 1}

    def run(n: int) -> dict[str, int]:
        binding = tensor(np.ones((n, 64), np.float32))
        count = Counted(fake)
        context.check(context.library.c.te_bind_input(context.context, 0, c.byref(binding)))
        context.check(context.library.c.te_run(context.context, 0))
        return count()

    def copied(count: int) -> dict[str, int]:
        return {"cuMemcpyAsync": count} if count else {}

    own = 0 if fake.integrated else 1
    changed = {"cuGraphExecKernelNodeSetParams": 1, "cuGraphExecMemcpyNodeSetParams": 1}
    assert run(4) == {**launched, **copied(1 + own)}  # the graph was made for it; the symbols
    assert run(4) == {**launched, **copied(own)}
    assert run(2) == {**launched, **copied(1 + own), **changed}
    assert run(0) == {**launched, **copied(1), "cuGraphNodeSetEnabled": 2}
    assert run(0) == launched
    assert run(2) == {**launched, **copied(1 + own), **changed, "cuGraphNodeSetEnabled": 2}
    context.close()


def test_pieces_of_an_entry_with_loops(fake: FakeCuda, tmp_path: Path) -> None:
    """One graph for each straight piece, made once however often it runs."""
    library = fake.open(written(nested("cuda"), tmp_path / "bundle"))
    context = Context(library)
    made = fake.calls("cuGraphInstantiateWithFlags")
    assert made == 6
    for n in (9, 5):
        context.run({"x": floats(64), "n": np.array([n], np.int64)})
    assert fake.calls("cuGraphInstantiateWithFlags") == made
    assert fake.calls("cuLaunchKernel") == 0
    context.close()


def test_profile(fake: FakeCuda, tmp_path: Path) -> None:
    context = Context(
        fake.open(written(programs.addition("cuda"), tmp_path / "bundle")), profile=True
    )
    for _ in range(3):
        context.run({"a": floats(4, 64), "b:0": floats(4, 64)})
    rows = []
    for index in range(2):
        info = ProfileInfo()
        assert context.library.c.te_profile(context.context, index, c.byref(info))
        assert info.nanoseconds > 0
        rows.append((info.kernel, info.nodes, info.runs, info.flops))
    assert rows == [(b"add", b"Add_0", 3, 512), (b"copy", b"", 3, 0)]
    assert fake.calls("cuGraphCreate") == fake.calls("cuGraphLaunch") == 0
    assert fake.calls("cuLaunchKernel") == 3
    context.close()


def test_waiting_ends_in_time(fake: FakeCuda, tmp_path: Path) -> None:
    library = fake.open(written(programs.counter("cuda"), tmp_path / "bundle"), not_ready=3)
    context = Context(library)
    call = library.c
    context.bind({"x": floats(64)})
    context.check(call.te_submit(context.context, 0))
    for _ in range(2):
        refused("run.timeout", lambda: context.check(call.te_wait(context.context, c.c_int64(0))))
    refused("api.argument", lambda: context.check(call.te_submit(context.context, 0)))
    refused("api.argument", lambda: context.get_state(0))
    context.check(call.te_wait(context.context, c.c_int64(10_000)))
    same({"": context.get_state(0)}, {"": floats(64) + np.float32(10)})
    context.check(call.te_submit(context.context, 0))
    context.close()  # in the middle of a run


def primary_context(fake: FakeCuda) -> tuple[c.CDLL, c.c_void_p]:
    driver, context = fake.c, c.c_void_p()
    assert driver.cuInit(0) == 0
    assert driver.cuCtxCreate_v2(c.byref(context), 0, 0) == 0
    return driver, context


@pytest.mark.parametrize("given", ["context", "stream", "both"])
def test_objects_and_memory_of_the_caller(fake: FakeCuda, tmp_path: Path, given: str) -> None:
    library = fake.open(written(programs.counter("cuda"), tmp_path / "bundle"))
    driver, theirs = primary_context(fake)
    stream, memory = c.c_void_p(), c.c_uint64()
    assert driver.cuCtxPushCurrent_v2(theirs) == 0
    assert driver.cuStreamCreate(c.byref(stream), 1) == 0
    assert driver.cuMemAlloc_v2(c.byref(memory), c.c_size_t(1024)) == 0
    x, out = floats(64), np.zeros(64, np.float32)
    place = c.c_uint64(memory.value + 256)
    assert driver.cuMemcpyHtoD_v2(place, c.c_void_p(x.ctypes.data), c.c_size_t(256)) == 0
    options = Cuda()
    if given != "stream":
        options.context = theirs
    if given != "context":
        options.stream = stream
    context = Context(library, cuda=options)
    source, target = tensor(x), tensor(out)
    source.data = target.data = None
    source.device = target.device = memory
    source.offset, target.offset = 256, 512
    context.check(library.c.te_bind_input(context.context, 0, c.byref(source)))
    context.check(library.c.te_bind_output(context.context, 0, c.byref(target)))
    for _ in range(2):
        context.check(library.c.te_run(context.context, 0))
    assert fake.calls("cuDevicePrimaryCtxRetain") == 0
    context.close()
    place = c.c_uint64(memory.value + 512)
    assert driver.cuMemcpyDtoH_v2(c.c_void_p(out.ctypes.data), place, c.c_size_t(256)) == 0
    same({"": out}, {"": floats(64) + np.float32(10) + floats(64)})
    assert driver.cuMemFree_v2(memory) == driver.cuStreamDestroy_v2(stream) == 0
    popped = c.c_void_p()
    assert driver.cuCtxPopCurrent_v2(c.byref(popped)) == 0
    assert popped.value == theirs.value
    assert driver.cuCtxDestroy_v2(theirs) == 0


def test_measured_memory_is_what_is_taken(fake: FakeCuda, tmp_path: Path) -> None:
    library = fake.open(written(programs.counter("cuda"), tmp_path / "bundle"))
    measured = library.measure()
    assert fake.calls() == 0
    memory = Memory()
    model = library.open(library.open_options(memory.allocator))
    assert measured.weights == measured.arenas == 0
    assert sum(memory.live.values()) == measured.manifest
    context = library.create(model)
    assert sum(memory.live.values()) == measured.manifest + measured.context
    assert measured.device == fake.taken()
    # The arena, the weight, the symbols; of the host the symbols, two ports, the state.
    assert measured.device == programs.ARENA + 256 + 256 + 256 + 2 * 1024 + 256
    library.c.te_destroy(context)
    library.c.te_close(model)
    assert not memory.live


# --- what it refuses ----------------------------------------------------------------------------


def refusal(library: CudaLibrary, **options: Any) -> RuntimeFailure:
    """How te_create fails. Memory of the host is given back."""
    memory = Memory()
    model = library.open(library.open_options(memory.allocator))
    kept = len(memory.live)
    with pytest.raises(RuntimeFailure) as caught:
        library.create(model, library.create_options(**options))
    assert len(memory.live) == kept
    library.c.te_close(model)
    assert str(caught.value).startswith(f"{caught.value.id}: ")
    return caught.value


def test_no_driver(discrete: FakeCuda, tmp_path: Path) -> None:
    library = discrete.open(written(programs.addition("cuda"), tmp_path / "bundle"))
    failure = refusal(library, cuda=Cuda(library=b"/nowhere/libcuda.so.1"))
    assert failure.id == "device.missing"
    assert "/nowhere/libcuda.so.1 cannot be loaded" in str(failure)
    source, old = tmp_path / "old.c", tmp_path / "old.so"
    source.write_text("int cuInit(unsigned flags) { return (int)flags; }\n")
    build.run(build.CC, "-shared", "-fPIC", "-o", old, source)
    failure = refusal(library, cuda=Cuda(library=str(old).encode()))
    assert failure.id == "device.missing"
    assert "no cuDriverGetVersion: it is older than CUDA 12" in str(failure)


def test_no_device(discrete: FakeCuda, tmp_path: Path) -> None:
    bundle = written(programs.addition("cuda"), tmp_path / "bundle")
    failure = refusal(discrete.open(bundle, device=None))
    assert failure.id == "device.missing"
    assert "CUDA_ERROR_NO_DEVICE (100)" in str(failure)
    failure = refusal(discrete.open(bundle, init=803))
    assert failure.id == "device.missing"
    assert "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)" in str(failure)


def test_devices_by_number_and_name(discrete: FakeCuda, tmp_path: Path) -> None:
    bundle = written(programs.addition("cuda"), tmp_path / "bundle")
    library = discrete.open(bundle, device="NVIDIA One\ndevice NVIDIA Two")
    model = library.open()
    for name in (b"", b"0", b"1", b"nvidia two", b"One"):
        options = library.create_options(cuda=Cuda(device=name))
        library.c.te_destroy(library.create(model, options))
    library.c.te_close(model)
    for name in (b"2", b"Three"):
        failure = refusal(library, cuda=Cuda(device=name))
        assert failure.id == "device.adapter"
        assert f"none of 2 CUDA devices is called {name.decode()}" in str(failure)


ARCHITECTURES = (75, 80, 86, 87, 90, 100)


@pytest.mark.parametrize(
    ("capability", "loaded"),
    [
        *((75, "00075.cubin"), (78, "00075.cubin"), (80, "00080.cubin"), (86, "00086.cubin")),
        *((87, "00087.cubin"), (89, "00087.cubin"), (90, "00090.cubin"), (103, "00100.cubin")),
        *((110, "00100.ptx"), (121, "00100.ptx")),
    ],
)
def test_which_compiled_file_is_loaded(
    discrete: FakeCuda, tmp_path: Path, capability: int, loaded: str
) -> None:
    bundle = written(programs.addition("cuda"), tmp_path / "bundle", ARCHITECTURES)
    description = discrete.describe(bundle, {"capability": capability})
    image = (bundle / f"kernels-{loaded}").read_bytes()
    number = f"{discrete.c.fake_hash(image, c.c_size_t(len(image))):x}"
    lines = description.read_text().splitlines()
    kept = [line for line in lines if not line.startswith("module") or line.split()[1] == number]
    assert len(kept) < len(lines)
    description.write_text("\n".join(kept) + "\n")
    discrete.start(description)
    Context(CudaLibrary(bundle, discrete.runtime, discrete.driver)).close()
    assert discrete.calls("cuModuleLoadDataEx") == 1


def test_wrong_architecture(discrete: FakeCuda, tmp_path: Path) -> None:
    bundle = written(programs.addition("cuda"), tmp_path / "bundle", (87, 90))
    failure = refusal(discrete.open(bundle, capability=75))
    assert failure.id == "device.arch"
    assert "the device is sm_75" in str(failure)
    assert "compiled for sm_87 sm_90: export again with --arch sm_75" in str(failure)
    failure = refusal(discrete.open(bundle, capability=72))
    assert "the device is sm_72" in str(failure) and "--arch" not in str(failure)
    assert "export again for the target cpu, sm_75 is the oldest" in str(failure)
    nothing = cuda.write(programs.addition("cuda"), tmp_path / "nothing")
    failure = refusal(discrete.open(nothing))
    assert failure.id == "device.arch"
    assert "compiled for no architecture" in str(failure)


def test_old_driver(discrete: FakeCuda, tmp_path: Path) -> None:
    """It takes the cubin of its device, but PTX of a newer CUDA only with words why not."""
    bundle = written(programs.addition("cuda"), tmp_path / "bundle")
    Context(discrete.open(bundle, version=12020, newest_ptx=12060)).close()
    failure = refusal(discrete.open(bundle, version=12020, newest_ptx=12060, capability=90))
    assert failure.id == "device.arch"
    for words in (
        *("CUDA 12.2 refuses kernels-00087.ptx", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)"),
        *("ptxas application ptx input, line 9", "update it, or export by an NVRTC no newer"),
    ):
        assert words in str(failure)


def test_a_refused_cubin_leaves_the_ptx(discrete: FakeCuda, tmp_path: Path) -> None:
    bundle = written(programs.addition("cuda"), tmp_path / "bundle")
    description = discrete.describe(bundle)
    lines = description.read_text().splitlines()
    description.write_text("\n".join(line for line in lines if "cubin" not in line) + "\n")
    discrete.start(description)
    context = Context(CudaLibrary(bundle, discrete.runtime, discrete.driver))
    assert discrete.calls("cuModuleLoadDataEx") == 2
    context.close()


def test_too_little(discrete: FakeCuda, tmp_path: Path) -> None:
    bundle = written(programs.addition("cuda"), tmp_path / "bundle")
    failure = refusal(discrete.open(bundle, memory=16384))
    assert failure.id == "device.memory"
    needed = programs.ARENA + 1024 + 256
    assert f"need {needed} bytes of the device, which has 16384 unused" in str(failure)
    program = programs.addition("cuda")
    (kernel,) = program.kernels
    large = replace(program, kernels=(replace(kernel, workgroup=(2048, 1, 1)),))
    failure = refusal(discrete.open(written(large, tmp_path / "large")))
    assert failure.id == "device.limits"
    assert "invocations of 2048, the device has 1024" in str(failure)


def test_a_grid_beyond_the_devices(discrete: FakeCuda, tmp_path: Path) -> None:
    program = growing("cuda")
    (entry,) = program.entries
    launch, copy = entry.steps
    assert isinstance(launch, Launch)
    for most, id in ((2, ""), (1, "device.counts")):
        steps = (replace(launch, grid=("N", ("sub", 65537, ("mul", "N", most)), 1)), copy)
        wide = replace(
            program, symbols=(Symbol("N", 1, 1),), entries=(replace(entry, steps=steps),)
        )
        library = discrete.open(written(wide, tmp_path / f"bundle{most}"))
        if id:
            assert refusal(library).id == id
        else:
            Context(library).close()


def test_files_changed_since_the_bundle_was_opened(discrete: FakeCuda, tmp_path: Path) -> None:
    bundle = written(programs.addition("cuda"), tmp_path / "bundle")
    library = discrete.open(bundle)
    for name in ("kernels-00087.cubin", "weights-00000.bin"):
        path = bundle / name
        content = path.read_bytes()
        for changed, id in (
            (bytes([content[0] ^ 1]) + content[1:], "bundle.file.hash"),
            (content + b"more", "bundle.file.size"),
        ):
            model = library.open()
            path.write_bytes(changed)
            refused(id, lambda model=model: library.create(model))
            path.write_bytes(content)
            library.c.te_close(model)


# --- when something fails -----------------------------------------------------------------------


def use(library: CudaLibrary, name: str, allocator: Any = None, **options: Any) -> None:
    """Everything that calls the driver."""
    _, runs = RUNS[name]
    model = library.open(library.open_options(allocator))
    context: Context = Context.__new__(Context)
    context.library, context.model, context.bound = library, model, {}
    try:
        context.context = library.create(model, library.create_options(**options))
        try:
            arrays = bind_outputs(context)
            for entry, inputs in runs[:2]:
                context.run(inputs, entry)
            if name == "counter":
                context.set_state(0, context.get_state(0))
                context.check(library.c.te_reset(context.context))
            assert arrays
        finally:
            library.c.te_destroy(context.context)
    finally:
        library.c.te_close(model)


@pytest.mark.parametrize("profile", [False, True], ids=["graphs", "profile"])
@pytest.mark.parametrize("name", ["counter", "growing", "nested"])
def test_every_call_of_the_driver_may_fail(
    fake: FakeCuda, tmp_path: Path, name: str, profile: bool
) -> None:
    """Whichever it is: an error that names it, everything given back, and no wrong use after."""
    # Three turns of the innermost loop: the calls of later ones are those of the second.
    program = nested("cuda", bound=3) if name == "nested" else RUNS[name][0]("cuda")
    bundle = written(program, tmp_path / "bundle")
    library = fake.open(bundle)
    use(library, name, profile=profile)
    fake.check()
    calls, failed = fake.calls(), 0
    assert calls > 60
    description = bundle.with_name("bundle.device")
    for number in range(1, calls + 1):
        answer = (999, 2)[number % 2]
        fake.start(description, f"fail {number} {answer}")
        try:
            use(library, name, profile=profile)
        except RuntimeFailure as failure:
            failed += 1
            assert failure.id in ("device.missing", "device.driver", "device.memory"), number
            assert f"({answer})" in str(failure) or "bytes of the device" in str(failure)
        fake.check()
    # What is given back at the end has nobody to tell.
    graphs = 0 if profile else 2 * fake.calls("cuGraphCreate")
    events = fake.calls("cuEventCreate")
    assert calls - failed <= graphs + events + 8


@pytest.mark.parametrize("profile", [False, True], ids=["graphs", "profile"])
def test_every_allocation_may_fail(fake: FakeCuda, tmp_path: Path, profile: bool) -> None:
    bundle = written(programs.counter("cuda"), tmp_path / "bundle")
    sound = Memory()
    library = fake.open(bundle)
    use(library, "counter", sound.allocator, profile=profile)
    assert not sound.live
    assert len(sound.sizes) > 5
    for failing in range(len(sound.sizes)):
        memory = Memory(failing)
        fake.start(bundle.with_name("bundle.device"))
        refused("device.memory", lambda m=memory: use(library, "counter", m.allocator))
        assert not memory.live, failing
        fake.check()


def test_self_test(library: Library, cpu_device: Device) -> None:
    program = programs.counter("cuda")
    with Replay(programs.counter("cpu"), cpu_device) as replay:
        made = cases(programs.counter("cpu"), replay)
    opened = library(program)
    folder = cuda.write(
        replace(program, binaries=_binaries(opened.bundle)), opened.bundle / "golden", made
    )
    opened.bundle = folder
    model = opened.open()
    report = opened.self_test(model)
    assert (report.cases, report.outputs, report.wrong, report.distinct) == (2, 2, 0, 0)
    opened.c.te_close(model)


def _binaries(bundle: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in bundle.iterdir() if cuda.COMPILED.fullmatch(p.name)}
