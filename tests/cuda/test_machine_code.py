"""Machine code for Orin and for a data center's GPU: whole vectors, no spilled registers."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.agreement import Inputs, compiled, find_target
from tests.bench import cases
from tests.bench import cuda as machine_code
from tests.conformance.cases import FAMILIES
from tests.cuda.sass import REGISTERS, TABLE_BYTES, TRIGONOMETRIC, Code, disassemble
from tests.examples.conftest import make
from tests.examples.reference import EXAMPLE
from tests.golden.test_golden import GRAPHS
from tests.runtimes_c import build
from tinyedge.core.compiler.options import Options
from tinyedge.core.program.program import Program
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.bundle.reading import read
from tinyedge.export.bundle.writing import kernel_file
from tinyedge.targets.cuda import compiler
from tinyedge.targets.cuda.caps import LIMITATIONS

ARCHITECTURES = ("sm_87", "sm_90")


def elementwise(inputs: Inputs) -> dict[str, Tensor]:
    x, y = (inputs.new(np.zeros((64, 128), np.float32)) for _ in range(2))
    return {"y": (x * 2.0 + y).relu().in_memory() + x.tanh() * y.exp() + x.sin()}


def winograd(inputs: Inputs) -> dict[str, Tensor]:
    """Tiles of 4 x 4 outputs, also of many with a border, and of 2 x 2."""
    generator = np.random.default_rng(5)
    tensors = {}
    for name, side in (("y", 24), ("z", 6), ("large", 56)):
        x = inputs.new(np.zeros((1, 48, side, side), np.float32))
        filters = generator.normal(size=(48, 48, 3, 3)).astype(np.float32)
        y = x.conv(Tensor.weight(f"w{side}", filters), pads=((1, 1), (1, 1)))
        tensors[name] = y.relu()
    return tensors


def contractions(inputs: Inputs) -> dict[str, Tensor]:
    """As in MobileNetV2, ResNet and a vision transformer: channels, filters, side, filter, step."""
    generator = np.random.default_rng(6)
    shapes = (
        *((3, 32, 112, 3, 2), (3, 64, 112, 7, 2), (24, 144, 56, 1, 1), (960, 320, 7, 1, 1)),
        *((64, 128, 56, 3, 2), (512, 2048, 7, 1, 1)),
    )
    tensors = {}
    for channels, filters, side, kernel, step in shapes:
        name = f"{channels} {filters} {kernel}"
        x = inputs.new(np.zeros((1, channels, side, side), np.float32))
        weight = generator.normal(size=(filters, channels, kernel, kernel)).astype(np.float32)
        last = generator.normal(size=(filters, filters, 1, 1)).astype(np.float32)
        pads = ((kernel // 2, kernel // 2),) * 2
        y = x.relu().conv(Tensor.weight(f"w {name}", weight), pads=pads, strides=(step, step))
        tensors[name] = y.relu().conv(Tensor.weight(f"l {name}", last))
    x, queries, keys = (np.zeros(s, np.float32) for s in ((197, 192), (3, 197, 64), (3, 64, 197)))
    projection = generator.normal(size=(192, 576)).astype(np.float32)
    tensors["projection"] = inputs.new(x) @ Tensor.weight("p", projection)
    tensors["scores"] = inputs.new(queries) @ inputs.new(keys)
    long, odd = (inputs.new(np.zeros(s, np.float32)) for s in ((256, 509), (509, 256)))
    tensors["a prime of steps"] = long @ odd
    main, beside = (
        inputs.new(np.zeros(s, np.float32)) for s in ((1, 128, 14, 14), (1, 256, 28, 28))
    )
    first, second = (generator.normal(size=(512, n, 1, 1)).astype(np.float32) for n in (128, 256))
    shortcut = beside.conv(Tensor.weight("shortcut", second), strides=(2, 2))
    tensors["two sums"] = (main.conv(Tensor.weight("main", first)) + shortcut).relu()
    large = np.zeros((1024, 1024), np.float32)
    tensors["large"] = inputs.new(large) @ inputs.new(large)
    return tensors


# Models of which the kernels compile quickly, in one precision each; the others are slow tests.
QUICK = (("minilm", "fp16"), ("onet", "fp32"))

# What is wrong by design, and why: docs/cuda.md.
KNOWN = {("bert", "fp32"): ["kernels-00090.cubin: k1_matmul_15: 153 registers"]}

BUILDS: dict[str, Callable[[Inputs], dict[str, Tensor]]] = {
    **GRAPHS,
    "elementwise": elementwise,
    "winograd": winograd,
    "contractions": contractions,
}


def program_of(name: str, precision: str) -> Program:
    inputs = Inputs()
    outputs = BUILDS[name](inputs)
    options = Options(precision=precision)
    program = compiled(outputs, inputs, find_target("cuda"), options).program
    assert program is not None
    return program


def check(name: str, code: Code, source: str) -> list[str]:
    """What is wrong with a kernel's code."""
    found = []
    if code.registers > REGISTERS:
        found.append(f"{code.registers} registers")
    if code.stack + code.local > (TABLE_BYTES if TRIGONOMETRIC.search(source) else 0):
        found.append(f"{code.stack} bytes of stack, {code.local} of local memory")
    if not code.stack and (code.count("STL") or code.count("LDL")):
        found.append("loads or stores of local memory")
    for vector, bits in (("float4", 128), ("int4", 128), ("half4", 64), ("float2", 64)):
        if re.search(rf"const {vector} \*", source) and not code.count("LDG", bits):
            found.append(f"no load of a {vector}")
        if re.search(rf"^    {vector} \*", source, re.MULTILINE) and not code.count("STG", bits):
            found.append(f"no store of a {vector}")
    return [f"{name}: {why}" for why in found]


def faults(program: Program, binaries: dict[str, bytes], folder: Path) -> list[str]:
    sources = {kernel.name: kernel.source for kernel in program.kernels}
    found = []
    for file, content in sorted(binaries.items()):
        if file.endswith(".cubin"):
            codes = disassemble(content, folder)
            assert codes.keys() == sources.keys()
            for name, code in codes.items():
                found += [f"{file}: {why}" for why in check(name, code, sources[name])]
    return found


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", BUILDS)
def test_small_graphs(name: str, precision: str, tmp_path: Path) -> None:
    program = program_of(name, precision)
    binaries = compiler.build(kernel_file(program), ARCHITECTURES, pytest.fail)
    assert not faults(program, binaries, tmp_path)


@pytest.mark.parametrize(
    "optimize",
    [
        pytest.param(True, id="optimized"),
        pytest.param(False, id="plain", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("architecture", ["sm_87", pytest.param("sm_90", marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", FAMILIES)
def test_conformance_suite(family: str, architecture: str, optimize: bool, tmp_path: Path) -> None:
    """What the suite runs on the processor compiles for GPUs as well, and as well as that."""
    inputs = Inputs()
    tensors = {label: tensor for label, tensor, _ in FAMILIES[family](inputs, LIMITATIONS)}
    options = Options(optimize=optimize)
    program = compiled(tensors, inputs, find_target("cuda"), options).program
    assert program is not None
    binaries = compiler.build(kernel_file(program), [architecture], pytest.fail)
    assert not faults(program, binaries, tmp_path)


def test_contractions_share_tiles(tmp_path: Path) -> None:
    """Both operands come from the workgroup's memory by 16 bytes, and from memory at most once for
    four products and sums; what is loaded ahead is twice in the text, before the loop and in it.
    """
    program = program_of("contractions", "fp32")
    binaries = compiler.build(kernel_file(program), ["sm_87"], pytest.fail)
    codes = disassemble(binaries["kernels-00087.cubin"], tmp_path)
    products = {name: code for name, code in codes.items() if code.count("FFMA") > 32}
    assert len(products) == 17
    for name, code in products.items():
        assert code.shared > 0, name
        assert code.count("LDS", 128) >= 2 and code.count("FFMA") >= 2 * code.count("LDG"), name


def test_the_largest_loads_are_used(tmp_path: Path) -> None:
    """A product of matrices: every access is of 16 bytes, every product and sum one instruction."""
    program = program_of("matmul", "fp32")
    binaries = compiler.build(kernel_file(program), ARCHITECTURES, pytest.fail)
    for architecture in ARCHITECTURES:
        file = f"kernels-{compiler.number(architecture):05}.cubin"
        (code,) = disassemble(binaries[file], tmp_path).values()
        assert code.count("LDG") == code.count("LDG", 128) > 0
        assert code.count("STG") == code.count("STG", 128) > 0
        assert code.count("FFMA") >= 32 and code.count("FMUL") == 0


def test_a_reciprocal_is_one_instruction(tmp_path: Path) -> None:
    """Exact quotients call a function for the rare cases; the sigmoid and its kin need none."""
    inputs = Inputs()
    x = inputs.new(np.zeros((64, 128), np.float32))
    program = compiled({"y": x.sigmoid()}, inputs, find_target("cuda")).program
    assert program is not None
    binaries = compiler.build(kernel_file(program), ["sm_87"], pytest.fail)
    (code,) = disassemble(binaries["kernels-00087.cubin"], tmp_path).values()
    assert code.count("MUFU") == 8 and code.count("CALL") == 0


@pytest.mark.parametrize(
    ("model", "precision"),
    [
        pytest.param(*each, marks=[] if each in QUICK else [pytest.mark.slow])
        for each in itertools.product(sorted(cases.ALL), ("fp32", "fp16"))
    ],
)
def test_models(model: str, precision: str, tmp_path: Path) -> None:
    """Every kernel of every model that is measured: real ones, the study's networks, and those of
    the onnx wheel.
    """
    bundle = machine_code.export(cases.ALL[model], tmp_path / "bundle", ARCHITECTURES, precision)
    program = read(bundle).program
    found = faults(program, dict(program.binaries), tmp_path)
    assert program.kernels and found == KNOWN.get((model, precision), [])


@pytest.mark.slow
def test_the_driving_example(tmp_path: Path) -> None:
    build.run(sys.executable, EXAMPLE / "model.py", tmp_path / "models")
    check_bundle(make(tmp_path / "models", tmp_path / "bundle", "bundle", target="cuda"), tmp_path)


def check_bundle(bundle: Path, folder: Path) -> None:
    program = read(bundle).program
    assert program.kernels and not faults(program, dict(program.binaries), folder)
    other = compiler.build(kernel_file(program), ["sm_90"], pytest.fail)
    assert not faults(program, other, folder)


SPILLING = """extern "C" __global__ void __launch_bounds__(1024) k0(
    float4 *__restrict__ b0,
    const float4 *__restrict__ b1) {
    float a[90], sum = 0;
    for (int i = 0; i < 90; i++) a[i] = ((const float *)b1)[threadIdx.x + i * 1024];
    for (int j = 0; j < 90; j++)
        for (int i = 0; i < 90; i++) sum += a[i] * a[(i * 7 + j) % 90] * sum;
    for (int i = 0; i < 90; i++) ((float *)b0)[threadIdx.x + i * 1024] = a[i] + sum;
}
"""


def test_faults_are_found(tmp_path: Path) -> None:
    """In a kernel that needs more registers than it may have, and reads one float at a time."""
    binaries = compiler.build(SPILLING, ["sm_87"], pytest.fail)
    (code,) = disassemble(binaries["kernels-00087.cubin"], tmp_path).values()
    assert code.count("STL") and code.count("LDL")
    found = check("k0", code, SPILLING)
    assert re.match(r"k0: \d+ bytes of stack", found[0])
    assert found[1:] == ["k0: no load of a float4", "k0: no store of a float4"]
