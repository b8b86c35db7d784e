"""Operators of onnxruntime's own: against sums written out here, and against onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.export.hostile import model
from tests.export.test_operators import compare, floats
from tests.imported import import_model
from tinyedge.core import dtype as dt
from tinyedge.core.errors import InputError, ModelError, UnsupportedOp
from tinyedge.core.ir import ops
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.uop import toposort
from tinyedge.export.limits import choose_limits
from tinyedge.export.onnx.registry import names

runtime = pytest.importorskip("onnxruntime")

DOMAIN = "com.microsoft"
NCHWC = "com.microsoft.nchwc"


def whole(kind: str, *shape: int, seed: int = 0) -> Any:
    """Any integers of a type."""
    limits = np.iinfo(kind)
    random = np.random.default_rng(seed)
    return random.integers(limits.min, limits.max, shape, endpoint=True).astype(kind)


def run(
    nodes: Sequence[Any],
    feeds: Mapping[str, Any],
    weights: Mapping[str, Any] | None = None,
    *,
    outputs: Sequence[str] = ("y",),
    opset: int = 13,
) -> list[Any]:
    """What the importer makes of nodes, by the reference evaluator."""
    return evaluated(import_model(source(nodes, feeds, weights, outputs, opset)), feeds)


def source(
    nodes: Sequence[Any],
    feeds: Mapping[str, Any],
    weights: Mapping[str, Any] | None,
    outputs: Sequence[str],
    opset: int = 13,
) -> bytes:
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in feeds.items()
    ]
    held = [numpy_helper.from_array(np.asarray(v), n) for n, v in (weights or {}).items()]
    proto = model(nodes, inputs=infos, outputs=tuple(outputs), weights=held, opset=opset)
    for domain in sorted({node.domain for node in nodes if node.domain}):
        proto.opset_import.append(helper.make_opsetid(domain, 1))
    text: bytes = proto.SerializeToString()
    return text


def evaluated(imported: Any, feeds: Mapping[str, Any]) -> list[Any]:
    return list(evaluate([tensor.node for tensor in imported.outputs.values()], dict(feeds)))


def one(op: str, inputs: Sequence[Any], *, outputs: int = 1, **attributes: Any) -> list[Any]:
    """One node of com.microsoft; None is an operand that is left out. Scalars are constants."""
    given = [f"i{n}" if value is not None else "" for n, value in enumerate(inputs)]
    values = {name: value for name, value in zip(given, inputs, strict=True) if name}
    scalars = {n: v for n, v in values.items() if np.ndim(v) == 0}
    results = [f"o{n}" for n in range(outputs)]
    attributes.setdefault("domain", DOMAIN)
    node = helper.make_node(op, given, results, **attributes)
    feeds = {n: v for n, v in values.items() if n not in scalars}
    return run([node], feeds, scalars, outputs=results)


# Against onnxruntime.

X = floats(2, 3, 4, 5)
U8 = whole("uint8", 2, 3, 4, 5, seed=5)
S8 = whole("int8", 2, 3, 4, 5, seed=5)
QUANTIZED = [np.float32(0.02), np.uint8(120)]
SIGNED = [np.float32(0.02), np.int8(-7)]
I8 = whole("int8", 5, 6, seed=6)
LARGE = (floats(3, 8) * 400).astype(np.float16)  # of which halves hold no squares
WORDS = np.array([[3, 1, 4, 1], [5, 9, 2, 6]], np.int32)
TABLES = [floats(10, 8), floats(6, 8, seed=1), floats(2, 8, seed=2), floats(8, seed=3), floats(8)]
MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
ROWS = [floats(2, 4, 6), floats(6, 24, seed=1) / 2, floats(24, seed=2)]
PAST = floats(2, 2, 2, 3, 4, seed=7)
COSINES = np.cos(floats(8, 2)), np.sin(floats(8, 2))
TURNED = [floats(2, 3, 8), np.array([[0, 1, 2], [3, 4, 5]], np.int64), *COSINES]

CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("FusedMatMul", [floats(2, 4, 3), floats(2, 5, 4)], {"transA": 1, "transB": 1, "alpha": 0.5}),
    ("FusedMatMul", [floats(4, 2, 3), floats(2, 3, 5)], {"transBatchA": 1}),
    ("FusedMatMul", [floats(2, 4, 3), floats(5, 2, 3)], {"transBatchB": 1, "transB": 1}),
    ("TransposeMatMul", [floats(2, 4, 3), floats(2, 5, 4)], {"transA": 1, "transB": 1}),
    ("FusedGemm", [floats(3, 4), floats(5, 4), floats(5)], {"transB": 1, "activation": "Relu"}),
    ("FusedGemm", [floats(3, 4), floats(4, 5)], {"alpha": 2.0, "activation": "Tanh"}),
    (
        "FusedGemm",
        [floats(3, 4), floats(4, 5), floats(3, 1)],
        {"beta": 0.5, "activation": "LeakyRelu", "activation_alpha": 0.3},
    ),
    ("Gelu", [X], {}),
    ("BiasGelu", [X, floats(5)], {}),
    ("FastGelu", [X, floats(5)], {}),
    ("QuickGelu", [X], {"alpha": 1.5}),
    ("FusedConv", [floats(1, 3, 5, 5), floats(4, 3, 3, 3), floats(4)], {"activation": "Relu"}),
    (
        "FusedConv",
        [floats(1, 3, 5, 5), floats(4, 3, 3, 3), floats(4), floats(1, 4, 3, 3, seed=4)],
        {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
    ),
    ("SkipLayerNormalization", [floats(2, 3, 8), floats(2, 3, 8, seed=1), *[floats(8)] * 3], {}),
    ("SkipSimplifiedLayerNormalization", [floats(2, 3, 8), floats(2, 3, 8, seed=1), floats(8)], {}),
    ("SkipSimplifiedLayerNormalization", [LARGE, LARGE, LARGE[0] / 1000], {}),
    ("SkipLayerNormalization", [LARGE, LARGE, LARGE[0] / 1000], {}),
    ("EmbedLayerNormalization", [WORDS, WORDS % 2, *TABLES, MASK], {"outputs": 3}),
    ("EmbedLayerNormalization", [WORDS, None, *TABLES[:2], None, *TABLES[3:]], {"outputs": 2}),
    (
        "EmbedLayerNormalization",
        [WORDS, WORDS % 2, *TABLES, None, WORDS[:, ::-1] % 6],
        {"outputs": 2, "epsilon": 0.1},
    ),
    ("QuantizeLinear", [X, np.float32(0.02), np.uint8(3)], {}),
    ("QuantizeLinear", [X, np.float32(0.001), np.uint16(30000)], {}),
    ("DequantizeLinear", [U8, *QUANTIZED], {}),
    ("DequantizeLinear", [whole("int16", 3, 4), np.float32(0.1), np.int16(-300)], {}),
    ("QLinearAdd", [U8, *QUANTIZED, U8[::-1].copy(), *QUANTIZED, *QUANTIZED], {}),
    ("QLinearAdd", [S8, *SIGNED, S8[::-1, :1].copy(), *SIGNED, np.float32(0.05), np.int8(3)], {}),
    ("QLinearMul", [U8, *QUANTIZED, U8[::-1].copy(), *QUANTIZED, *QUANTIZED], {}),
    ("QLinearSigmoid", [U8, *QUANTIZED, np.float32(1 / 256), np.uint8(0)], {}),
    ("QLinearSigmoid", [S8, *SIGNED, np.float32(1 / 256), np.int8(-128)], {}),
    ("QLinearLeakyRelu", [U8, *QUANTIZED, *QUANTIZED], {"alpha": 0.1}),
    ("QLinearSoftmax", [U8, *QUANTIZED, np.float32(1 / 256), np.uint8(0)], {"opset": 13}),
    (
        "QLinearSoftmax",
        [S8, *SIGNED, np.float32(1 / 512), np.int8(-128)],
        {"opset": 12, "axis": 2},
    ),
    (
        "QLinearWhere",
        [U8 > 99, U8, *QUANTIZED, U8[::-1].copy(), np.float32(0.03), np.uint8(9), *QUANTIZED],
        {},
    ),
    (
        "QLinearAveragePool",
        [U8, *QUANTIZED, np.float32(0.015), np.uint8(99)],
        {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]},
    ),
    (
        "QLinearAveragePool",
        [S8, *SIGNED, *SIGNED],
        {"kernel_shape": [2, 2], "channels_last": 1, "pads": [1, 1, 0, 0], "count_include_pad": 1},
    ),
    ("QLinearGlobalAveragePool", [U8, *QUANTIZED, *QUANTIZED], {}),
    ("QLinearGlobalAveragePool", [S8, *SIGNED, *SIGNED], {"channels_last": 1}),
    ("QLinearConcat", [*QUANTIZED, U8, *QUANTIZED, U8, np.float32(0.03), np.uint8(7)], {"axis": 1}),
    (
        "QLinearConv",
        [U8, *QUANTIZED, whole("int8", 6, 5, 2, 2), floats(6) ** 2 / 90, np.zeros(6, np.int8)]
        + [np.float32(0.9), np.uint8(128), whole("int16", 6).astype(np.int32)],
        {"channels_last": 1, "pads": [1, 1, 0, 0]},
    ),
    ("NhwcMaxPool", [U8], {"kernel_shape": [2, 2], "strides": [2, 1]}),
    (
        "QGemm",
        [U8[0, 0], *QUANTIZED, I8.T.copy(), np.float32(0.1), np.int8(0)]
        + [whole("int16", 6).astype(np.int32), np.float32(0.2), np.uint8(100)],
        {"transB": 1, "alpha": 1.0},
    ),
    (
        "QGemm",
        [U8[0, 0].T.copy(), *QUANTIZED, I8, floats(6) ** 2 / 50, np.zeros(6, np.int8)],
        {"transA": 1},
    ),
    ("MatMulIntegerToFloat", [U8, I8, np.float32(0.1), floats(6), np.uint8(9)], {}),
    ("DynamicQuantizeMatMul", [X, I8, np.float32(0.1)], {}),
    ("Attention", ROWS, {"num_heads": 2}),
    ("Attention", [*ROWS, MASK], {"num_heads": 2, "unidirectional": 1}),
    ("Attention", [*ROWS, np.array([3, 2], np.int32)], {"num_heads": 2, "scale": 0.3}),
    ("Attention", [*ROWS, np.array([3, 2, 1, 0], np.int32)], {"num_heads": 2}),
    (
        "Attention",
        [*ROWS, whole("int32", 2, 4, 4) % 2],
        {"num_heads": 2, "mask_filter_value": -9.0},
    ),
    ("Attention", [*ROWS, None, PAST], {"num_heads": 2, "unidirectional": 1, "outputs": 2}),
    (
        "Attention",
        [*ROWS, None, None, floats(1, 2, 4, 4)],
        {"num_heads": 2, "qkv_hidden_sizes": [6, 6, 12]},
    ),
    (
        "QAttention",
        [whole("uint8", 2, 4, 6), whole("int8", 6, 24), floats(24)]
        + [np.float32(0.02), np.float32(0.01), MASK, np.uint8(120), np.int8(0)],
        {"num_heads": 2},
    ),
    ("MultiHeadAttention", [floats(2, 4, 6), floats(2, 3, 6), floats(2, 3, 8)], {"num_heads": 2}),
    (
        "MultiHeadAttention",
        [floats(2, 4, 6), floats(2, 3, 6), floats(2, 3, 8), floats(20), MASK[:, 1:]],
        {"num_heads": 2},
    ),
    (
        "MultiHeadAttention",
        [floats(2, 4, 6), floats(2, 2, 5, 3), floats(2, 2, 5, 3), floats(18)],
        {"num_heads": 2},
    ),
    (
        "MultiHeadAttention",
        [floats(2, 4, 6), floats(2, 4, 6), floats(2, 4, 6), None, None, floats(2, 1, 4, 7)]
        + [floats(2, 2, 3, 3), floats(2, 2, 3, 3)],
        {"num_heads": 2, "unidirectional": 1, "outputs": 3},
    ),
    (
        "MatMulBnb4",
        [floats(2, 3, 24), whole("uint8", 60), floats(8) ** 2],
        {"K": 24, "N": 5, "block_size": 16, "quant_type": 0},
    ),
    (
        "MatMulBnb4",
        [floats(2, 3, 24), whole("uint8", 60), floats(8) ** 2],
        {"K": 24, "N": 5, "block_size": 16, "quant_type": 1},
    ),
    ("RotaryEmbedding", TURNED, {"num_heads": 2, "rotary_embedding_dim": 4}),
    ("RotaryEmbedding", [TURNED[0], np.array([2]), *COSINES], {"interleaved": 1}),
    (
        "RotaryEmbedding",
        [floats(2, 3, 3, 6), *TURNED[1:]],
        {"num_heads": 3, "rotary_embedding_dim": 4},
    ),
]

# Where onnxruntime reads tables or multiplies by a rounded quotient, one step beside is no fault.
WEIGHTS = {("MatMulBnb4", 1), ("MatMulBnb4", 2)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_as_onnxruntime_does(case: tuple[str, list[Any], dict[str, Any]]) -> None:
    op, inputs, attributes = case
    values = [None if value is None else np.asarray(value) for value in inputs]
    scalars = tuple(
        n for n, v in enumerate(values) if v is not None and (v.ndim == 0 or (op, n) in WEIGHTS)
    )
    compare(op, 17, values, constants=scalars, domain=DOMAIN, steps=1, **attributes)


ELSEWHERE = {  # DynamicQuantizeLSTM in test_recurrent.py, the others below
    *("BiasAdd", "BiasDropout", "BiasSoftmax", "BiasSplitGelu", "DynamicQuantizeLSTM"),
    *("FusedMatMulActivation", "GatherBlockQuantized", "GroupNorm", "MatMulNBits", "NhwcConv"),
    *("NhwcFusedConv", "QEmbedLayerNormalization", "QLinearReduceMean", "SkipGroupNorm"),
}
LANGUAGE = """
    DecoderMaskedMultiHeadAttention GroupQueryAttention MoE PackedMultiHeadAttention
    QMoE SparseAttention BeamSearch GreedySearch Sampling RelativePositionBias
""".split()


def _of_onnxruntime() -> list[str]:
    schemas = runtime.capi.onnxruntime_pybind11_state.get_all_operator_schema()
    return sorted({schema.name for schema in schemas if schema.domain == DOMAIN})


def test_every_operator_of_onnxruntime_runs_or_is_refused_by_name() -> None:
    """Those of language models among them: a model of all of them names each at once."""
    tested = {op for op, _, _ in CASES} | ELSEWHERE
    have = set(names(DOMAIN))
    assert have == tested
    missing = [op for op in _of_onnxruntime() if op not in have]
    assert len(missing) > 80 and set(LANGUAGE) <= set(missing)
    for start in range(0, len(missing), 50):  # so many does an error list
        some = missing[start : start + 50]
        nodes = [
            helper.make_node(op, ["x"], [f"y {op}"], name=f"a {op}", domain=DOMAIN) for op in some
        ]
        proto = model(nodes, outputs=tuple(node.output[0] for node in nodes))
        proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        with pytest.raises(UnsupportedOp) as caught:
            import_model(proto.SerializeToString())
        for op in some:
            assert f"'a {op}' ({op}, opset 1)" in caught.value.because
            assert f"tinyedge has no com.microsoft.{op}\n" in caught.value.because + "\n"
        assert "again as plain ONNX: without onnxruntime's optimizer" in caught.value.next


def test_an_attribute_that_is_not_understood_is_refused() -> None:
    node = helper.make_node("Gelu", ["x"], ["y"], domain=DOMAIN, surprise=1)
    proto = model([node])
    proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    with pytest.raises(InputError, match="surprise"):
        import_model(proto.SerializeToString())


# Integers: exact sums, one rounding half to even, saturation.


def rounded(x: Any, zero: int, kind: str) -> Any:
    limits = np.iinfo(kind)
    return np.clip(np.rint(x) + zero, limits.min, limits.max).astype(kind)


def test_a_quantized_product_rounds_halves_to_even_and_saturates() -> None:
    """Sums of 1, 3, 5, 7 halves, and of more than 8 bits hold."""
    a = np.array([[129], [131], [133], [135], [255], [0]], np.uint8)
    operands = [a, np.float32(0.5), np.uint8(128), np.ones((1, 1), np.int8), np.float32(1.0)]
    operands += [np.int8(0), np.array([0], np.int32), np.float32(1.0), np.int8(0)]
    assert one("QGemm", operands)[0].ravel().tolist() == [0, 2, 2, 4, 64, -64]
    operands[-2:] = [np.float32(0.25), np.int8(100)]
    assert one("QGemm", operands)[0].ravel().tolist() == [102, 106, 110, 114, 127, -128]


def test_a_quantized_product_adds_its_bias_before_scaling() -> None:
    a, b = whole("uint8", 3, 7), whole("uint8", 5, 7, seed=1)
    bias, scales = whole("int16", 5, seed=2).astype(np.int32), np.float32([0.1, 0.2, 0.3, 0.4, 0.5])
    zeros = np.array([1, 2, 3, 4, 250], np.uint8)
    wide = [a, np.float32(0.02), np.uint8(7), b, scales, zeros, bias]
    total = (a.astype(np.int64) - 7) @ (b.astype(np.int64) - zeros[:, None]).T + bias
    exact = total * (2.5 * np.float64(np.float32(0.02)) * scales)
    got = one("QGemm", wide, transB=1, alpha=2.5)[0]
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, exact, rtol=1e-6)
    steps = one("QGemm", [*wide, np.float32(40.0), np.uint8(30)], transB=1, alpha=2.5)[0]
    np.testing.assert_array_equal(steps, rounded(exact / 40, 30, "uint8"))


@pytest.mark.parametrize("last", [0, 1])
def test_a_mean_of_integers_leaves_out_the_padding(last: int) -> None:
    """[1, 1, 1, 3] in windows of 2 with a pad on each side: means of 1, 2, 2 and 1 elements."""
    x = np.array([12, 14, 16, 23], np.uint8).reshape((1, 1, 4, 1) if last else (1, 1, 1, 4))
    got = one(
        "QLinearAveragePool",
        [x, np.float32(0.5), np.uint8(10), np.float32(0.25), np.uint8(100)],
        kernel_shape=[1, 2],
        pads=[0, 1, 0, 1],
        channels_last=last,
    )[0]
    # (2, 3, 5, 9.5, 13) halves, in quarters from 100
    assert got.ravel().tolist() == [104, 106, 110, 119, 126]


@pytest.mark.parametrize("keep", [0, 1])
def test_a_mean_over_axes_of_integers(keep: int) -> None:
    steps = [np.float32(0.02), np.uint8(120), np.float32(0.005), np.uint8(80)]
    got = one("QLinearReduceMean", [U8, *steps], axes=[1, -1], keepdims=keep)[0]
    exact = (U8.astype(np.float64) - 120).mean((1, 3), keepdims=bool(keep)) * (0.02 / 0.005)
    np.testing.assert_array_equal(got, rounded(exact, 80, "uint8"))


def test_softmax_of_integers_before_and_since_opset_13() -> None:
    x = np.array([[[10, 10], [10, 10]]], np.uint8)
    steps = [x, np.float32(1.0), np.uint8(0), np.float32(1 / 256), np.uint8(0)]
    assert (one("QLinearSoftmax", steps, opset=13, axis=1)[0] == 128).all()
    assert (one("QLinearSoftmax", steps, opset=12, axis=1)[0] == 64).all()


def test_a_channels_last_convolution_is_the_usual_one_moved() -> None:
    x, w = whole("uint8", 2, 5, 4, 3), whole("int8", 6, 1, 3, 2, seed=1)
    scales, bias = np.float32([1, 2, 3, 4, 5, 6]) / 500, whole("int16", 6).astype(np.int32)
    rest = [w, scales, np.arange(6, dtype=np.int8), np.float32(0.9), np.int8(-3), bias]
    inputs = [np.float32(0.1), np.uint8(99), *rest]
    options: dict[str, Any] = {"group": 3, "strides": [2, 1], "pads": [1, 0, 1, 1]}
    got = one("QLinearConv", [x, *inputs], channels_last=1, **options)[0]
    moved = one("QLinearConv", [x.transpose(0, 3, 1, 2), *inputs], **options)[0]
    np.testing.assert_array_equal(got, moved.transpose(0, 2, 3, 1))
    # one element by hand: row 1, column 2 of filter 4, which reads channel 2
    total = int(bias[4])
    for i in range(3):
        for j in range(2):
            row, column = 2 * 1 - 1 + i, 2 + j
            if column < 4:
                total += (int(x[1, row, column, 2]) - 99) * (int(w[4, 0, i, j]) - 4)
    exact = total * (0.1 * float(scales[4])) / 0.9
    assert got[1, 1, 2, 4] == rounded(exact, -3, "int8")


# Weights of a few bits.


def pack(numbers: Any, bits: int) -> Any:
    """Numbers along the last axis in bytes, the first in the lowest bits."""
    per = 8 // bits
    padded = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, -numbers.shape[-1] % per)])
    parts = padded.reshape(*numbers.shape[:-1], -1, per).astype(np.uint32)
    return (parts << (np.arange(per, dtype=np.uint32) * bits)).sum(-1).astype(np.uint8)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["", "packed", "floats"])
def test_products_of_weights_of_a_few_bits(bits: int, zeros: str) -> None:
    """40 columns in blocks of 16: the last block is filled up."""
    rows, length, block, blocks = 5, 40, 16, 3
    random = np.random.default_rng(bits)
    numbers = random.integers(0, 1 << bits, (rows, blocks * block))
    scales = random.uniform(0.1, 1, (rows, blocks)).astype(np.float32)
    centers: Any = np.full((rows, blocks), 1 << (bits - 1))
    operands: dict[str, Any] = {
        "b": pack(numbers, bits).reshape(rows, blocks, -1),
        "scales": scales.reshape(-1),
    }
    if zeros:
        centers = random.integers(0, 1 << bits, (rows, blocks))
        operands["zeros"] = pack(centers, bits).reshape(-1)
    if zeros == "floats":
        centers = random.uniform(0, 1 << bits, (rows, blocks)).astype(np.float32)
        operands["zeros"] = centers
    node = helper.make_node(
        "MatMulNBits",
        ["a", *operands],
        ["y"],
        domain=DOMAIN,
        K=length,
        N=rows,
        bits=bits,
        block_size=block,
    )
    a = floats(2, 3, length)
    wide = np.repeat(np.float64(centers), block, 1), np.repeat(np.float64(scales), block, 1)
    weight = ((numbers - wide[0]) * wide[1])[:, :length]
    np.testing.assert_allclose(
        run([node], {"a": a}, operands)[0], a.astype(np.float64) @ weight.T, rtol=1e-4, atol=1e-4
    )


def _product(name: str, block: int = 32) -> Any:
    """A product of x [1, 64] with 64 rows of 4-bit numbers."""
    sizes = {"K": 64, "N": 64, "bits": 4, "block_size": block}
    return helper.make_node("MatMulNBits", ["x", "b", "s"], [name], domain=DOMAIN, **sizes)


def test_weights_of_a_few_bits_are_no_made_constants() -> None:
    """Their numbers are bounded by the model's bytes, and made once for all nodes that use them."""
    stored = {"b": whole("uint8", 64, 2, 16), "s": floats(128)}
    nodes = [_product("y"), _product("z"), helper.make_node("Add", ["y", "z"], ["out"])]
    data = source(nodes, {"x": floats(1, 64)}, stored, ("out",))
    imported = import_model(data, limits=choose_limits({"made": 100}))
    buffers = [n for n in toposort((imported.outputs["out"].node,)) if n.op is ops.BUFFER]
    assert [n.shape for n in buffers if n.dtype is dt.uint8] == [(64, 64)]


def test_blocks_of_less_than_a_byte_are_invalid() -> None:
    stored = {"b": np.zeros((64, 64, 0), np.uint8), "s": floats(64 * 64)}
    with pytest.raises(ModelError, match="in blocks of 1"):
        import_model(source([_product("y", block=1)], {"x": floats(1, 64)}, stored, ("y",)))


@pytest.mark.parametrize("kind", [2, 4, 8, "int4", "uint4"])
@pytest.mark.parametrize("zeros", [False, True])
def test_rows_of_weights_of_a_few_bits(kind: int | str, zeros: bool) -> None:
    bits = kind if isinstance(kind, int) else 4
    random = np.random.default_rng(bits)
    low = -8 if kind == "int4" else 0
    numbers = random.integers(low, low + (1 << bits), (7, 32))
    scales = random.uniform(0.1, 1, (7, 2)).astype(np.float32)
    centers = random.integers(low, low + (1 << bits), (7, 2))
    plain = 0 if isinstance(kind, str) else 1 << (bits - 1)
    indices = np.array([[6, 0, 3], [1, 1, -7]])
    given = ["data", "indices", "scales", *(["zeros"] if zeros else [])]
    node = helper.make_node(
        "GatherBlockQuantized",
        given,
        ["y"],
        domain=DOMAIN,
        gather_axis=0,
        quantize_axis=1,
        block_size=16,
        **({"bits": bits} if kind == bits else {}),
    )
    infos = [helper.make_tensor_value_info("indices", TensorProto.INT64, (2, 3))]
    if isinstance(kind, str):
        code = {"int4": TensorProto.INT4, "uint4": TensorProto.UINT4}[kind]
        held = [helper.make_tensor("data", code, (7, 32), numbers.ravel().tolist())]
        held += [helper.make_tensor("zeros", code, (7, 2), centers.ravel().tolist())] * zeros
    else:
        held = [numpy_helper.from_array(pack(numbers, bits), "data")]
        held += [numpy_helper.from_array(pack(centers, bits), "zeros")] * zeros
    held.append(numpy_helper.from_array(scales, "scales"))
    proto = model([node], inputs=infos, weights=held, opset=21)
    proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    imported = import_model(proto.SerializeToString())
    (got,) = evaluated(imported, {"indices": indices})
    table = (numbers - np.repeat(centers if zeros else np.full((7, 2), plain), 16, 1)) * np.repeat(
        scales, 16, 1
    )
    np.testing.assert_allclose(got, table[indices], rtol=1e-6)


def test_codes_of_normal_quantiles() -> None:
    """The first number of a byte is in its high bits: 15 is 1, 7 is 0, 0 is -1."""
    node = helper.make_node(
        "MatMulBnb4", ["a", "b", "s"], ["y"], domain=DOMAIN, K=2, N=2, block_size=16, quant_type=1
    )
    weights = {"b": np.array([0xF7, 0x0F], np.uint8), "s": np.float32([3.0])}
    assert run([node], {"a": np.float32([[1, 10]])}, weights)[0].tolist() == [[3, 27]]


# Layer normalization where ONNX has none.


def test_layer_normalization_in_operator_sets_that_lack_it() -> None:
    x, scale, shift = floats(2, 3, 8), floats(8, seed=1), floats(8, seed=2)
    node = helper.make_node("LayerNormalization", ["x", "s", "b"], ["y", "m", "i"], epsilon=0.25)
    weights = {"s": scale, "b": shift}
    got = run([node], {"x": x}, weights, outputs=("y", "m", "i"))
    wide = x.astype(np.float64)
    mean, variance = wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True)
    np.testing.assert_allclose(
        got[0], (wide - mean) / np.sqrt(variance + 0.25) * scale + shift, 1e-5, 1e-6
    )
    np.testing.assert_allclose(got[1], mean, 1e-5, 1e-6)
    np.testing.assert_allclose(got[2], 1 / np.sqrt(variance + 0.25), 1e-5)


def test_layer_normalization_of_halves_by_floats_gives_floats() -> None:
    x = (floats(3, 8) * 900).astype(np.float16)
    node = helper.make_node("LayerNormalization", ["x", "s"], ["y"])
    (got,) = run([node], {"x": x}, {"s": np.ones(8, np.float32)}, opset=16)
    wide = x.astype(np.float64)
    right = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, right, 1e-4, 1e-5)


@pytest.mark.parametrize("opset", [9, 17, 21])
def test_normalization_by_the_mean_of_squares(opset: int) -> None:
    x, scale = floats(2, 3, 8), floats(3, 8, seed=1)
    node = helper.make_node(
        "SimplifiedLayerNormalization", ["x", "s"], ["y", "i"], axis=1, epsilon=0.5
    )
    got = run([node], {"x": x}, {"s": scale}, outputs=("y", "i"), opset=opset)
    inverse = 1 / np.sqrt((x.astype(np.float64) ** 2).mean((1, 2), keepdims=True) + 0.5)
    np.testing.assert_allclose(got[0], x * inverse * scale, 1e-5, 1e-6)
    np.testing.assert_allclose(got[1], inverse, 1e-5)


def test_other_operators_that_an_operator_set_lacks_are_refused() -> None:
    for op, opset in (("Gelu", 13), ("RMSNormalization", 22), ("GroupNormalization", 17)):
        with pytest.raises(UnsupportedOp, match="no operator of this name"):
            run([helper.make_node(op, ["x"], ["y"])], {"x": X}, opset=opset)
    node = helper.make_node("LayerNormalization", ["x", "x"], ["y"], surprise=1)
    with pytest.raises(UnsupportedOp, match="surprise"):
        run([node], {"x": floats(8)})


# What onnxruntime computes on GPUs only.


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
def test_group_norm(last: int, activation: int) -> None:
    x, scale, shift = floats(2, 6, 3, 2), floats(6, seed=1), floats(6, seed=2)
    skip, bias = floats(2, 6, seed=3), floats(6, seed=4)

    def right(total: Any) -> Any:
        parts = total.reshape(2, 3, 2, 3, 2)
        mean, variance = parts.mean((2, 3, 4), keepdims=True), parts.var((2, 3, 4), keepdims=True)
        normal = ((parts - mean) / np.sqrt(variance + 1e-5)).reshape(total.shape)
        y = normal * scale[:, None, None] + shift[:, None, None]
        return y / (1 + np.exp(-y)) if activation else y

    def seen(array: Any) -> Any:
        return array.transpose(0, 2, 3, 1) if last else array

    options = {"groups": 3, "activation": activation, "channels_last": last, "epsilon": 1e-5}
    wide = x.astype(np.float64)
    given = [seen(x), scale, shift]
    np.testing.assert_allclose(one("GroupNorm", given, **options)[0], seen(right(wide)), 1e-4, 1e-5)
    total = wide + skip[:, :, None, None] + bias[:, None, None]
    got = one("SkipGroupNorm", [*given, skip, bias], outputs=2, **options)
    np.testing.assert_allclose(got[0], seen(right(total)), 1e-4, 1e-5)
    np.testing.assert_allclose(got[1], seen(total), 1e-5, 1e-5)


def test_biases() -> None:
    x, bias, skip = floats(2, 3, 8), floats(8, seed=1), floats(2, 3, 8, seed=2)
    np.testing.assert_allclose(one("BiasAdd", [x, bias, skip])[0], x + bias + skip, 1e-6)
    total = (x + bias).astype(np.float64)
    left, right = total[..., :4], total[..., 4:]
    erf = np.vectorize(math.erf)
    wanted = left * (0.5 * right * (1 + erf(right / math.sqrt(2))))
    np.testing.assert_allclose(one("BiasSplitGelu", [x, bias])[0], wanted, 1e-4, 1e-6)
    dropped, mask = one("BiasDropout", [x, bias, skip, np.float32(0.5)], outputs=2, seed=3)
    np.testing.assert_allclose(dropped, x + bias + skip, 1e-6)
    assert mask.all() and mask.shape == x.shape
    exps = np.exp(x + floats(3, 1, seed=3))
    softmax = one("BiasSoftmax", [x, floats(3, 1, seed=3)], axis=1, is_inner_broadcast=0)[0]
    np.testing.assert_allclose(softmax, exps / exps.sum((1, 2), keepdims=True), 1e-5)


def test_channels_last_convolutions() -> None:
    x, w, b = floats(2, 5, 4, 3), floats(6, 3, 3, 3, seed=1), floats(6, seed=2)
    added = floats(2, 5, 4, 6, seed=3)
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    right = np.zeros((2, 5, 4, 6))
    for i in range(3):
        for j in range(3):
            right += padded[:, i : i + 5, j : j + 4] @ w[:, :, i, j].T.astype(np.float64)
    right += b
    got = one("NhwcConv", [x, w, b], pads=[1] * 4)[0]
    np.testing.assert_allclose(got, right, 1e-4, 1e-5)
    fused = one("NhwcFusedConv", [x, w, b, added], pads=[1] * 4, activation="Relu")[0]
    np.testing.assert_allclose(fused, np.maximum(right + added, 0), 1e-4, 1e-5)


def test_products_with_activations() -> None:
    a, b = floats(3, 4), floats(5, 4, seed=1)
    options: dict[str, Any] = {"transB": 1, "activation": "HardSigmoid", "activation_alpha": 0.1}
    got = one("FusedMatMulActivation", [a, b], **options)[0]
    np.testing.assert_allclose(got, np.clip(a @ b.T * 0.1 + 0.5, 0, 1), 1e-5, 1e-6)
    with pytest.raises(UnsupportedOp, match="activation 'Cos'"):
        one("FusedGemm", [a, b.T.copy()], activation="Cos")
    with pytest.raises(ModelError, match="with 1 parameters"):
        conv = [floats(1, 1, 3, 3), floats(1, 1, 1, 1)]
        one("FusedConv", conv, activation="Clip", activation_params=[1.0])


def test_embeddings_of_integers() -> None:
    """As the float operator of the numbers that the integers stand for."""
    tables = [whole("uint8", *table.shape, seed=n) for n, table in enumerate(TABLES)]
    steps = [np.float32(0.01 * (n + 1)) for n in range(5)]
    zeros = [np.uint8(100 + n) for n in range(5)]
    got = one(
        "QEmbedLayerNormalization", [WORDS, WORDS % 2, *tables, MASK, *steps, *zeros], outputs=2
    )
    wide = [
        ((t.astype(np.float64) - z) * s).astype(np.float32)
        for t, s, z in zip(tables, steps, zeros, strict=True)
    ]
    right = one("EmbedLayerNormalization", [WORDS, WORDS % 2, *wide, MASK], outputs=2)
    np.testing.assert_allclose(got[0], right[0], 1e-5, 1e-5)
    assert got[1].tolist() == [3, 2]


# Attention.


def attended(
    q: Any, k: Any, v: Any, allowed: Any, added: Any = 0.0, filtered: float = -10000.0
) -> Any:
    """[B, heads, S, H] by rows, in double precision."""
    scores = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 1, 3, 2)
    scores = scores / math.sqrt(q.shape[-1]) + np.where(allowed, 0.0, filtered) + added
    exps = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = exps / exps.sum(-1, keepdims=True) @ v.astype(np.float64)
    return mixed.transpose(0, 2, 1, 3).reshape(q.shape[0], q.shape[2], -1)


def test_attention_with_a_past() -> None:
    """Keys and values of 3 steps before 4 new ones; each step looks back only."""
    x, w, b = ROWS
    past = floats(2, 2, 2, 3, 4, seed=9)
    got = one("Attention", [x, w, b, None, past], num_heads=2, unidirectional=1, outputs=2)
    q, k, v = (
        part.reshape(2, 4, 2, 4).transpose(0, 2, 1, 3) for part in np.split(x @ w + b, 3, axis=-1)
    )
    keys, values = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    allowed = np.arange(7) <= np.arange(4)[:, None] + 3
    np.testing.assert_allclose(
        got[0], attended(q, keys, values, allowed, filtered=-1e30), 1e-4, 1e-5
    )
    np.testing.assert_allclose(got[1], np.stack([keys, values]), 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("mask", "allowed"),
    [
        (np.array([3, 1], np.int32), [[1, 1, 1, 0], [1, 0, 0, 0]]),
        (np.array([3, 4, 1, 2], np.int32), [[0, 1, 1, 0], [0, 0, 1, 1]]),
        (np.array([2, 3, 0, 2, 5, 0, 2, 5], np.int32), [[1, 1, 0, 0], [1, 1, 1, 0]]),
        (np.array([[1, 0, 1, 0], [0, 1, 1, 1]], np.int32), [[1, 0, 1, 0], [0, 1, 1, 1]]),
    ],
)
def test_masks_of_attention(mask: Any, allowed: Any) -> None:
    parts = [floats(2, 4, 6), floats(2, 4, 6, seed=1), floats(2, 4, 6, seed=2)]
    got = one("MultiHeadAttention", [*parts, None, mask], num_heads=3)[0]
    q, k, v = (part.reshape(2, 4, 3, 2).transpose(0, 2, 1, 3) for part in parts)
    right = attended(q, k, v, np.array(allowed, bool)[:, None, None])
    np.testing.assert_allclose(got, right, 1e-4, 1e-5)


def test_packed_query_key_and_value() -> None:
    parts = [floats(2, 4, 6), floats(2, 4, 6, seed=1), floats(2, 4, 6, seed=2)]
    plain = one("MultiHeadAttention", parts, num_heads=3)[0]
    heads = [part.reshape(2, 4, 3, 1, 2) for part in parts]
    packed = np.concatenate(heads, 3)
    np.testing.assert_array_equal(one("MultiHeadAttention", [packed], num_heads=3)[0], plain)
    both = one("MultiHeadAttention", [parts[0], packed[:, :, :, 1:]], num_heads=3)[0]
    np.testing.assert_array_equal(both, plain)


def test_what_attention_does_not_take_is_refused() -> None:
    with pytest.raises(UnsupportedOp, match="share a buffer"):
        one("Attention", ROWS, num_heads=2, past_present_share_buffer=1)
    with pytest.raises(UnsupportedOp, match="do_rotary"):
        one("Attention", ROWS, num_heads=2, do_rotary=1)
    with pytest.raises(ModelError, match="in 5 heads"):
        one("Attention", ROWS, num_heads=5)
    with pytest.raises(ModelError, match="its mask is"):
        one("Attention", [*ROWS, np.ones(5, np.int32)], num_heads=2)


def test_pairs_are_turned_by_their_angle() -> None:
    """A quarter turn of (1, 0) is (0, 1), and what is beyond the turned part stays."""
    x = np.zeros((1, 2, 6), np.float32)
    x[:, :, 0] = 1
    x[:, :, 4:] = 7
    angles = np.float32([[0, 0], [math.pi / 2, 0]])
    places, tables = np.array([[0, 1]]), [np.cos(angles), np.sin(angles)]
    options = {"num_heads": 1, "rotary_embedding_dim": 4}
    half = one("RotaryEmbedding", [x, places, *tables], **options)[0]
    np.testing.assert_allclose(half[0], [[1, 0, 0, 0, 7, 7], [0, 0, 1, 0, 7, 7]], atol=1e-6)
    pairs = one("RotaryEmbedding", [x, places, *tables], interleaved=1, **options)[0]
    np.testing.assert_allclose(pairs[0], [[1, 0, 0, 0, 7, 7], [0, 1, 0, 0, 7, 7]], atol=1e-6)


# Channels in blocks.


def in_blocks(weight: Any, block: int) -> Any:
    """A weight as onnxruntime orders it, element by element; filters are filled up to a block."""
    filters, channels, height, width = weight.shape
    full = -(-filters // block) * block
    padded = np.concatenate([weight, np.zeros((full - filters, *weight.shape[1:]), np.float32)])
    inner = block if channels >= block else 1
    order = [
        padded[o * block + oo, i * inner + ii, y, x]
        for o in range(full // block)
        for i in range(channels // inner)
        for y in range(height)
        for x in range(width)
        for ii in range(inner)
        for oo in range(block)
    ]
    return np.array(order, np.float32).reshape(full, channels, height, width)


@pytest.mark.parametrize("block", [8, 16])
def test_blocked_convolutions(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of 4, 2 * block and 3 filters; the first reads channels as they lie."""
    from tinyedge.export.onnx.operators import blocked

    monkeypatch.setattr(blocked, "_usual", lambda: 24 - block)  # not what the shapes say
    middle = 2 * block if block == 16 else 24
    first, second = floats(middle, 3, 3, 3, seed=1) / 3, floats(3, middle, 3, 3, seed=2) / 5
    depth, bias = floats(middle, 1, 3, 3, seed=3), floats(middle, seed=4)
    full = -(-3 // block) * block
    nodes = [
        helper.make_node(
            "Conv",
            ["x", "w0", "b0"],
            ["a"],
            domain=NCHWC,
            pads=[1] * 4,
            activation="Relu",
            group=1,
            kernel_shape=[3, 3],
        ),
        helper.make_node(
            "Conv",
            ["a", "w1", "b0", "a"],
            ["c"],
            domain=NCHWC,
            pads=[1] * 4,
            group=middle,
            kernel_shape=[3, 3],
        ),
        helper.make_node(
            "MaxPool", ["c"], ["d"], domain=NCHWC, kernel_shape=[2, 2], strides=[2, 2]
        ),
        helper.make_node(
            "Conv",
            ["d", "w2", "b2"],
            ["e"],
            domain=NCHWC,
            kernel_shape=[3, 3],
            activation="LeakyRelu",
            activation_params=[0.1],
        ),
        helper.make_node("Upsample", ["e"], ["f"], domain=NCHWC, scales=[1, 1, 2, 2]),
        helper.make_node("ReorderOutput", ["f"], ["y"], domain=NCHWC, channels=3, channels_last=1),
    ]
    weights = {
        "w0": in_blocks(first, block),
        "b0": bias,
        "w1": in_blocks(depth, block),
        "w2": in_blocks(second, block),
        "b2": np.concatenate([bias[:3], np.zeros(full - 3, np.float32)]),
    }
    x = floats(1, 3, 8, 8)
    (got,) = run(nodes, {"x": x}, weights)
    plain = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["a0"], pads=[1] * 4),
        helper.make_node("Relu", ["a0"], ["a"]),
        helper.make_node("Conv", ["a", "w1", "b0"], ["c0"], pads=[1] * 4, group=middle),
        helper.make_node("Add", ["c0", "a"], ["c"]),
        helper.make_node("MaxPool", ["c"], ["d"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["d", "w2", "b2"], ["e0"]),
        helper.make_node("LeakyRelu", ["e0"], ["e"], alpha=0.1),
        helper.make_node(
            "Resize",
            ["e", "", "scales"],
            ["f"],
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        helper.make_node("Transpose", ["f"], ["y"], perm=[0, 2, 3, 1]),
    ]
    scales = np.array([1, 1, 2, 2], np.float32)
    plainly = {"w0": first, "b0": bias, "w1": depth, "w2": second, "b2": bias[:3], "scales": scales}
    (right,) = run(plain, {"x": x}, plainly)
    np.testing.assert_allclose(got, right, 1e-5, 1e-5)


def test_blocks_that_the_file_does_not_prove_are_named_in_a_warning() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], domain=NCHWC)
    text = source([node], {"x": floats(1, 3, 4, 4)}, {"w": floats(32, 3, 1, 1)}, ("y",))
    (warning,) = import_model(text).warnings
    assert "blocks of 8 or 16 channels" in warning and "ORT_ENABLE_EXTENDED" in warning
