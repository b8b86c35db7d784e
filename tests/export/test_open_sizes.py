"""Operators over open sizes: one program at the least, a middle and the greatest of them.

Each model is written in onnx's own text. What it gives is compared with onnxruntime.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import compose, helper, parser

from tests.agreement import find_target
from tests.imported import import_model
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.errors import InputError, ModelError, UnsupportedOp
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graphs
from tinyedge.export.onnx import ImportedModel

Arrays = dict[str, Any]
NEW = ("Attention", "RotaryEmbedding", "RMSNormalization")  # of operator set 23
SIZES = {
    "N": range(1, 5),
    "T": range(1, 10),
    "L": range(3, 13),
    "H": range(4, 14),
    "W": range(5, 11),
    "M": range(2, 8),
    "E": range(2, 11, 2),
    "K": range(1, 2500),
}
RESIZES = {
    "linear": 'mode = "linear"',
    "asymmetric": 'mode = "linear", coordinate_transformation_mode = "asymmetric"',
    "corners": 'mode = "linear", coordinate_transformation_mode = "align_corners"',
    "torch": 'mode = "linear", coordinate_transformation_mode = "pytorch_half_pixel"',
    "symmetric": 'mode = "linear", coordinate_transformation_mode = "half_pixel_symmetric"',
    "cubic": 'mode = "cubic", cubic_coeff_a = -0.75',
    "cubic corners": 'mode = "cubic", coordinate_transformation_mode = "align_corners"',
    "cubic inside": 'mode = "cubic", exclude_outside = 1',
    "nearest": 'mode = "nearest"',
    "nearest floor": 'mode = "nearest", coordinate_transformation_mode = "asymmetric",'
    ' nearest_mode = "floor"',
    "nearest ceil": 'mode = "nearest", nearest_mode = "ceil"',
    "nearest corners": 'mode = "nearest", coordinate_transformation_mode = "align_corners",'
    ' nearest_mode = "round_prefer_ceil"',
    "antialias": 'mode = "linear", antialias = 1',
    "cubic antialias": 'mode = "cubic", antialias = 1',
}
SIZES_OF_Z = """
  s = Shape(z)
  i = Constant<value_ints = [2, 3]>()
  hw = Gather(s, i)
  nc = Shape<end = 2>(x)
  sizes = Concat<axis = 0>(nc, hw)
"""


def _resize(options: str) -> str:
    return (
        f"float[N,2,H,W] x, float[N,5,L,M] z => y: {SIZES_OF_Z} y = Resize<{options}>(x, , , sizes)"
    )


MODELS: dict[str, str] = {
    # Sampling.
    **{f"Resize {name} to another's size": _resize(options) for name, options in RESIZES.items()},
    "Resize linear by 2": """float[N,2,H,W] x => y:
        f = Constant<value_floats = [1.0, 1.0, 2.0, 2.0]>()
        y = Resize<mode = "linear">(x, , f)""",
    "Resize linear by 1.7": """float[N,2,H,W] x => y:
        f = Constant<value_floats = [1.7, 0.6]>()
        y = Resize<mode = "linear", axes = [2, 3]>(x, , f)""",
    "Resize cubic by 0.4": """float[N,2,H,W] x => y:
        f = Constant<value_floats = [0.4, 1.3]>()
        y = Resize<mode = "cubic", axes = [2, 3]>(x, , f)""",
    "Resize corners by 2": """float[N,2,H,W] x => y:
        f = Constant<value_floats = [2.0, 3.0]>()
        y = Resize<mode = "linear", coordinate_transformation_mode = "align_corners", axes = [2, 3]>
            (x, , f)""",
    "Resize nearest by 1.5": """float[N,2,H,W] x => y:
        f = Constant<value_floats = [1.5, 0.7]>()
        y = Resize<mode = "nearest", axes = [2, 3]>(x, , f)""",
    "Resize to a fixed size": """float[N,2,H,W] x => y:
        f = Constant<value_ints = [6, 7]>()
        y = Resize<mode = "linear", axes = [2, 3]>(x, , , f)""",
    "Resize cubic to a fixed size": """float[N,2,H,W] x => y:
        f = Constant<value_ints = [6, 7]>()
        y = Resize<mode = "cubic", axes = [2, 3]>(x, , , f)""",
    "Resize of a fixed size": """float[N,2,5,6] x, float[N,1,H,W] z => y:
        hw = Shape<start = 2>(z)
        y = Resize<mode = "linear", axes = [2, 3]>(x, , , hw)""",
    "Resize antialias by 0.5": """float[N,2,H,W] x => y:
        f = Constant<value_floats = [0.5, 0.5]>()
        y = Resize<mode = "linear", antialias = 1, axes = [2, 3]>(x, , f)""",
    "Resize of half a size": """float[N,2,H,W] x => y:
        hw = Shape<start = 2>(x)
        two = Constant<value_ints = [2]>()
        half = Div(hw, two)
        small = Resize<mode = "linear", axes = [2, 3]>(x, , , half)
        y = Resize<mode = "linear", axes = [2, 3]>(small, , , hw)""",
    "Resize by a quotient of sizes": """float[N,2,H,W] x, float[N,5,L,M] z => y:
        a = Shape<start = 2>(x)
        b = Shape<start = 2>(z)
        af = Cast<to = 1>(a)
        bf = Cast<to = 1>(b)
        f = Div(bf, af)
        y = Resize<mode = "linear", axes = [2, 3]>(x, , f)""",
    "GridSample": "float[N,2,H,W] x, float[N,L,M,2] g => y: y = GridSample(x, g)",
    "GridSample corners": """float[N,2,H,W] x, float[N,L,M,2] g => y:
        y = GridSample<align_corners = 1, padding_mode = "border">(x, g)""",
    "GridSample reflection": """float[N,2,H,W] x, float[N,L,M,2] g => y:
        y = GridSample<padding_mode = "reflection", mode = "cubic">(x, g)""",
    "GridSample nearest": """float[N,2,H,W] x, float[N,L,M,2] g => y:
        y = GridSample<mode = "nearest">(x, g)""",
    "AffineGrid": """float[N,2,3] t, float[N,2,H,W] x => y:
        s = Shape(x)
        g = AffineGrid(t, s)
        y = GridSample(x, g)""",
    "RoiAlign": """float[N,2,H,W] x, float[M,4] roi, int64[M] batch => y:
        y = RoiAlign<output_height = 2, output_width = 3, sampling_ratio = 2>(x, roi, batch)""",
    "MaxRoiPool": """float[N,2,H,W] x, float[M,5] rois => y:
        y = MaxRoiPool<pooled_shape = [2, 2]>(x, rois)""",
    "DeformConv": """float[N,2,H,W] x, float[3,2,3,3] w, float[N,18,H,W] o => y:
        y = DeformConv<pads = [1, 1, 1, 1]>(x, w, o)""",
    # Movement.
    "Slice by 2": """float[N,L] x => y:
        a = Constant<value_ints = [1]>() e = Constant<value_ints = [9223372036854775807]>()
        s = Constant<value_ints = [2]>()
        y = Slice(x, a, e, a, s)""",
    "Slice by -2": """float[N,L] x => y:
        b = Constant<value_ints = [-1]>() e = Constant<value_ints = [-9223372036854775807]>()
        a = Constant<value_ints = [1]>() s = Constant<value_ints = [-2]>()
        y = Slice(x, b, e, a, s)""",
    "Slice by -3 from the middle": """float[N,L] x => y:
        b = Constant<value_ints = [-2]>() e = Constant<value_ints = [0]>()
        a = Constant<value_ints = [1]>() s = Constant<value_ints = [-3]>()
        y = Slice(x, b, e, a, s)""",
    "Slice backwards from the start": """float[N,L] x => y:
        b = Constant<value_ints = [4]>() e = Constant<value_ints = [-20]>()
        a = Constant<value_ints = [1]>() s = Constant<value_ints = [-1]>()
        y = Slice(x, b, e, a, s)""",
    "Slice by 3 between": """float[N,L] x => y:
        b = Constant<value_ints = [-8]>() e = Constant<value_ints = [-1]>()
        a = Constant<value_ints = [1]>() s = Constant<value_ints = [3]>()
        y = Slice(x, b, e, a, s)""",
    "Slice by computed ends": """float[N,L] x, float[M] z => y:
        e = Shape(z) b = Constant<value_ints = [0]>() a = Constant<value_ints = [1]>()
        y = Slice(x, b, e, a)""",
    "Slice an end of either sign": """float[N,L] x, float[M] z => y:
        m = Shape(z) l = Shape<start = 1>(x) e = Sub(l, m)
        b = Constant<value_ints = [0]>() a = Constant<value_ints = [1]>()
        y = Slice(x, b, e, a)""",
    "Pad by computed": """float[N,2,H,W] x => y:
        hw = Shape<start = 2>(x) m = Constant<value_ints = [4]>()
        t = Neg(hw) p = Mod(t, m)
        zero = Constant<value_ints = [0, 0]>() a = Constant<value_ints = [2, 3]>()
        pads = Concat<axis = 0>(zero, p)
        y = Pad(x, pads, , a)""",
    "Pad reflect by computed": """float[N,2,H,W] x => y:
        hw = Shape<start = 2>(x) m = Constant<value_ints = [4]>()
        t = Neg(hw) p = Mod(t, m)
        zero = Constant<value_ints = [0, 0]>() a = Constant<value_ints = [2, 3]>()
        pads = Concat<axis = 0>(zero, p)
        y = Pad<mode = "reflect">(x, pads, , a)""",
    "Pad edge by computed": """float[N,2,H,W] x => y:
        hw = Shape<start = 2>(x) m = Constant<value_ints = [32]>()
        t = Neg(hw) p = Mod(t, m)
        zero = Constant<value_ints = [0, 0]>() a = Constant<value_ints = [2, 3]>()
        pads = Concat<axis = 0>(p, zero)
        y = Pad<mode = "edge">(x, pads, , a)""",
    "Pad wrap": """float[N,2,H,W] x => y:
        pads = Constant<value_ints = [0, 0, 2, 3, 0, 0, 1, 3]>()
        y = Pad<mode = "wrap">(x, pads)""",
    "Pad reflect": """float[N,2,H,W] x => y:
        pads = Constant<value_ints = [0, 0, 2, 3, 0, 0, 1, 3]>()
        y = Pad<mode = "reflect">(x, pads)""",
    "Pad reflect beyond the axis": """float[N,2,H,W] x => y:
        pads = Constant<value_ints = [0, 0, 3, 4, 0, 0, 3, 2]>()
        y = Pad<mode = "reflect">(x, pads)""",
    "Pad edge with a cut": """float[N,2,H,W] x => y:
        pads = Constant<value_ints = [0, 0, -1, 2, 0, 0, 1, -1]>()
        y = Pad<mode = "edge">(x, pads)""",
    "Pad before, a cut behind": """float[N,L] x => y:
        p = Constant<value_ints = [0, 2, 0, -2]>() y = Pad(x, p)""",
    "Pad to a length": """float[N,L] x => y:
        l = Shape<start = 1>(x) full = Constant<value_ints = [20]>() r = Sub(full, l)
        zero = Constant<value_ints = [0, 0, 0]>()
        pads = Concat<axis = 0>(zero, r) v = Constant<value_float = 2.5>()
        y = Pad(x, pads, v)""",
    "Pad or cut to a length": """float[N,L] x => y:
        l = Shape<start = 1>(x) full = Constant<value_ints = [7]>() r = Sub(full, l)
        zero = Constant<value_ints = [0, 0, 0]>()
        pads = Concat<axis = 0>(zero, r)
        y = Pad(x, pads)""",
    "CenterCropPad": """float[N,L,M] x => y:
        s = Constant<value_ints = [6, 5]>()
        y = CenterCropPad<axes = [1, 2]>(x, s)""",
    "CenterCropPad to another's size": """float[N,L,M] x, float[H,W] z => y:
        s = Shape(z)
        y = CenterCropPad<axes = [1, 2]>(x, s)""",
    "Reshape -1": """float[N,T,6] x => y:
        s = Constant<value_ints = [0, -1, 2, 3]>() y = Reshape(x, s)""",
    "Reshape computed": """float[N,H,W,4] x => y:
        n = Shape<end = 1>(x) m = Constant<value_ints = [-1]>() c = Constant<value_ints = [4]>()
        s = Concat<axis = 0>(n, m, c) y = Reshape(x, s)""",
    "Expand": """float[N,1,3] x, float[N,T,1] z => y: s = Shape(z) y = Expand(x, s)""",
    "Tile": """float[N,L] x, float[M] z => y:
        m = Shape(z) o = Constant<value_ints = [1]>() r = Concat<axis = 0>(o, m)
        y = Tile(x, r)""",
    "Split into computed parts": """float[N,L] x, float[M] z => y, y2:
        m = Constant<value_ints = [2]>() l = Shape<start = 1>(x) r = Sub(l, m)
        parts = Concat<axis = 0>(m, r)
        y, y2 = Split<axis = 1>(x, parts)""",
    "Split into halves": "float[N,L] x => y, y2: y, y2 = Split<axis = 1, num_outputs = 2>(x)",
    "Split into thirds": """float[N,L] x => y, y2, y3:
        y, y2, y3 = Split<axis = 1, num_outputs = 3>(x)""",
    "Chunks by sizes": """float[N,L] x => y, y2:
        l = Shape<start = 1>(x) two = Constant<value_ints = [2]>() h = Div(l, two) r = Sub(l, h)
        parts = Concat<axis = 0>(h, r)
        y, y2 = Split<axis = 1>(x, parts)""",
    "Concat": """float[N,L,2] x, float[N,T,2] z => y: y = Concat<axis = 1>(x, z, x)""",
    "Transpose": """float[N,L,M] x => y: y = Transpose<perm = [2, 0, 1]>(x)""",
    "DepthToSpace": """float[N,8,H,W] x => y: y = DepthToSpace<blocksize = 2>(x)""",
    "SpaceToDepth": """float[N,2,H,4] x => y:
        s = Constant<value_ints = [-1, 2, 4, 4]>() r = Constant<value_ints = [1, 1, 2, 1]>()
        t = Tile(x, r) y = SpaceToDepth<blocksize = 2>(t)""",
    "Flatten": "float[N,L,M] x => y: y = Flatten<axis = 2>(x)",
    "Trilu": "float[N,L,L] x => y: y = Trilu<upper = 0>(x)",
    "Trilu of a mask": """float[N,L] x => y:
        l = Shape<start = 1>(x) ll = Concat<axis = 0>(l, l)
        o = ConstantOfShape<value = float[1] {1.0}>(ll) y = Trilu<upper = 1>(o)""",
    "EyeLike": "float[H,W] x => y: y = EyeLike<k = 1>(x)",
    "ReverseSequence": """float[N,L,M] x, int64[N] lengths3 => y:
        y = ReverseSequence<batch_axis = 0, time_axis = 1>(x, lengths3)""",
    "Where": "bool[N,1,L] c, float[1,T,1] x, float[N,1,1] z => y: y = Where(c, x, z)",
    "Broadcast": "float[N,1,L] x, float[T,1] z => y: y = Add(x, z)",
    "Compress": "float[N,L] x, bool[L] c => y: y = Compress<axis = 1>(x, c)",
    # Indexing.
    "Gather": "float[N,L,M] x, int64[T] index3 => y: y = Gather<axis = 1>(x, index3)",
    "Gather last": """float[N,L,M] x => y:
        i = Constant<value_int = -1>() y = Gather<axis = 1>(x, i)""",
    "GatherElements": """float[N,L] x, int64[N,T] index3 => y:
        y = GatherElements<axis = 1>(x, index3)""",
    "GatherND": "float[N,L,M] x, int64[N,T,1] index3 => y: y = GatherND<batch_dims = 1>(x, index3)",
    "ScatterElements": """float[N,L] x, int64[N,3] order3, float[N,3] u => y:
        y = ScatterElements<axis = 1>(x, order3, u)""",
    "ScatterElements open": """float[N,L] x, float[N,L] z => y:
        k = Shape<start = 1>(x) v, i = TopK(z, k)
        y = ScatterElements<axis = 1>(x, i, z)""",
    "ScatterElements add": """float[N,L] x, int64[N,T] index3, float[N,T] u => y:
        y = ScatterElements<axis = 1, reduction = "add">(x, index3, u)""",
    "ScatterElements of one column": """float[N,L] x, float[N,1] u => y:
        i = ArgMax<axis = 1>(x)
        y = ScatterElements<axis = 1, reduction = "max">(x, i, u)""",
    "ScatterElements at a constant": """float[N,L] x, float[1,2] u => y:
        i = Constant<value = int64[1,2] {0, -1}>()
        y = ScatterElements<axis = 1>(x, i, u)""",
    "ScatterND": """float[L,M] x, int64[3,1] order3, float[3,M] u => y:
        y = ScatterND(x, order3, u)""",
    "ScatterND add": """float[L,M] x, int64[T,1] index3, float[T,M] u => y:
        y = ScatterND<reduction = "add">(x, index3, u)""",
    "ScatterND of a column": """float[N,L,4] x, float[N,L] u => y:
        s = Shape(x) z = Constant<value_int = 0>() one = Constant<value_int = 1>()
        n0 = Gather(s, z) l0 = Gather(s, one)
        n = Range(z, n0, one) l = Range(z, l0, one)
        a1 = Constant<value_ints = [1]>() a0 = Constant<value_ints = [0]>()
        nn = Unsqueeze(n, a1) ll = Unsqueeze(l, a0)
        two = Constant<value = int64[1,1] {2}>()
        nl = Add(nn, ll) zero = Sub(nl, nl)
        ni = Add(zero, nn) li = Add(zero, ll) ci = Add(zero, two)
        am = Constant<value_ints = [2]>()
        c0 = Unsqueeze(ni, am) c1 = Unsqueeze(li, am) c2 = Unsqueeze(ci, am)
        i = Concat<axis = 2>(c0, c1, c2)
        y = ScatterND(x, i, u)""",
    "ScatterND at a constant": """float[L,M] x, float[2,M] u => y:
        i = Constant<value = int64[2,1] {0, 2}>()
        y = ScatterND(x, i, u)""",
    "ScatterND of many": """float[K,2] x, int64[K,1] shuffled, float[K,2] u => y:
        y = ScatterND(x, shuffled, u)""",
    "ScatterElements of many": """float[N,K] x, int64[N,K] shuffled, float[N,K] u => y:
        y = ScatterElements<axis = 1>(x, shuffled, u)""",
    "OneHot": """int64[N,T] index3, float[M] z => y:
        d = Shape(z) v = Constant<value_floats = [0.5, 2.0]>() y = OneHot(index3, d, v)""",
    "TopK": """float[N,L] x => y, i:
        k = Constant<value_ints = [3]>() y, i = TopK(x, k)""",
    "TopK of all": "float[N,L] x => y, i: k = Shape<start = 1>(x) y, i = TopK<axis = 1>(x, k)",
    "ArgMax": "float[N,L] x => y: y = ArgMax<axis = 1>(x)",
    "NonZero": "float[N,L] x => y: c = Relu(x) y = NonZero(c)",
    "Unique rows": """float[N,T] x => y, i:
        z = Constant<value_float = 0.0>() g = Greater(x, z) f = Cast<to = 1>(g)
        y, a, i = Unique<axis = 0>(f)""",
    # Sums.
    "CumSum": """float[N,L] x => y: a = Constant<value_int = 1>() y = CumSum(x, a)""",
    "CumSum of those before": """float[N,L] x => y:
        a = Constant<value_int = 1>() y = CumSum<exclusive = 1>(x, a)""",
    "ReduceMean": """float[N,L,M] x => y:
        a = Constant<value_ints = [1, 2]>() y = ReduceMean<keepdims = 0>(x, a)""",
    "ReduceLogSumExp": """float[N,L,M] x => y:
        a = Constant<value_ints = [1]>() y = ReduceLogSumExp(x, a)""",
    "Softmax": "float[N,L] x => y: y = Softmax<axis = 1>(x)",
    "LayerNormalization": """float[N,L,8] x, float[8] s, float[8] b => y:
        y = LayerNormalization(x, s, b)""",
    "LayerNormalization over open axes": """float[N,L,M] x, float[L,M] s => y:
        y = LayerNormalization<axis = 1>(x, s)""",
    "InstanceNormalization": """float[N,3,H,W] x, float[3] s, float[3] b => y:
        y = InstanceNormalization(x, s, b)""",
    "GroupNormalization": """float[N,4,H,W] x, float[4] s, float[4] b => y:
        y = GroupNormalization<num_groups = 2>(x, s, b)""",
    "Einsum": """float[N,T,4] x, float[N,L,4] z => y:
        y = Einsum<equation = "bqd,bkd->bqk">(x, z)""",
    "MatMul": "float[N,T,L] x, float[N,L,M] z => y: y = MatMul(x, z)",
    "Gemm": """float[L,N] x, float[M,L] z, float[M] b => y:
        y = Gemm<transA = 1, transB = 1>(x, z, b)""",
    "Attention over a past": """float[N,2,T,4] q, float[N,2,T,4] k, float[N,2,T,4] v,
        float[N,2,L,4] pastk, float[N,2,L,4] pastv => y, presentk:
        presentk = Concat<axis = 2>(pastk, k) allv = Concat<axis = 2>(pastv, v)
        kt = Transpose<perm = [0, 1, 3, 2]>(presentk) s = MatMul(q, kt)
        p = Softmax<axis = -1>(s) y = MatMul(p, allv)""",
    # Windows.
    "Conv SAME": """float[N,2,H,W] x, float[3,2,3,3] w => y:
        y = Conv<auto_pad = "SAME_UPPER", strides = [2, 2]>(x, w)""",
    "Conv SAME_LOWER": """float[N,2,H,W] x, float[3,2,2,4] w => y:
        y = Conv<auto_pad = "SAME_LOWER", strides = [2, 3]>(x, w)""",
    "ConvTranspose": """float[N,2,H,W] x, float[2,3,3,3] w => y:
        y = ConvTranspose<strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [1, 1]>(x, w)""",
    "ConvTranspose SAME": """float[N,2,H,W] x, float[2,3,3,3] w => y:
        y = ConvTranspose<strides = [2, 2], auto_pad = "SAME_UPPER">(x, w)""",
    "ConvTranspose to a size": """float[N,2,H,4] x, float[2,3,3,3] w => y:
        y = ConvTranspose<strides = [1, 2], output_shape = [5, 9]>(x, w)""",
    "MaxPool ceil": """float[N,2,H,W] x => y:
        y = MaxPool<kernel_shape = [3, 2], strides = [2, 2], ceil_mode = 1>(x)""",
    "MaxPool ceil with pads": """float[N,2,H,W] x => y:
        y = MaxPool<kernel_shape = [2, 3], strides = [3, 2], pads = [1, 1, 1, 1], ceil_mode = 1>(x)
        """,
    "AveragePool ceil": """float[N,2,H,W] x => y:
        y = AveragePool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 0, 1, 1],
            ceil_mode = 1>(x)""",
    "AveragePool ceil and pads": """float[N,2,H,W] x => y:
        y = AveragePool<kernel_shape = [2, 3], strides = [3, 2], pads = [1, 1, 1, 1],
            ceil_mode = 1, count_include_pad = 1>(x)""",
    "MaxPool with indices": """float[N,2,H,W] x => y, i:
        y, i = MaxPool<kernel_shape = [2, 3], strides = [2, 1]>(x)""",
    "MaxUnpool": """float[N,2,E,E] x => y:
        v, i = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) s = Shape(x)
        y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(v, i, s)""",
    "MaxUnpool alone": """float[N,2,L,E] x => y:
        v, i = MaxPool<kernel_shape = [1, 2], strides = [1, 2]>(x)
        y = MaxUnpool<kernel_shape = [1, 2], strides = [1, 2]>(v, i)""",
    "GlobalAveragePool": "float[N,2,H,W] x => y: y = GlobalAveragePool(x)",
    "LRN": "float[N,5,H,W] x => y: y = LRN<size = 3>(x)",
    "AveragePool to one": "float[N,2,H,W] x => y: y = GlobalMaxPool(x)",
    # Recurrent.
    "LSTM": """float[T,N,3] x, float[1,8,3] w, float[1,8,2] r => y, h, c:
        y, h, c = LSTM<hidden_size = 2>(x, w, r)""",
    "GRU both ways": """float[T,N,3] x, float[2,6,3] w, float[2,6,2] r, int32[N] steps => y, h:
        y, h = GRU<hidden_size = 2, direction = "bidirectional">(x, w, r, , steps)""",
    # Signal.
    "STFT": """float[N,L,1] x, float[3] window => y:
        s = Constant<value_int = 1>() y = STFT(x, s, window)""",
    "DFT": "float[N,L,1] x => y: y = DFT(x)",
    "DFT onesided": """float[N,L,2,1] x => y:
        a = Constant<value_int = 1>() y = DFT<onesided = 1>(x, , a)""",
    "DFT inverse": "float[N,L,2] x => y: y = DFT<inverse = 1>(x)",
    "DFT of a fixed length": """float[N,L,1] x => y:
        n = Constant<value_int = 8>() y = DFT(x, n)""",
    "HannWindow": "float[L] x => y: l = Shape(x) s = Squeeze(l) y = HannWindow<periodic = 0>(s)",
    # Attention.
    "Attention": """float[N,T,8] q, float[N,T,8] k, float[N,T,8] v, float[N,2,L,4] pastk,
        float[N,2,L,4] pastv => y, pk, pv:
        y, pk, pv = Attention<q_num_heads = 2, kv_num_heads = 2, is_causal = 1>
            (q, k, v, , pastk, pastv)""",
    "Attention with a mask": """float[N,4,T,8] q, float[N,2,L,8] k, float[N,2,L,8] v,
        float[T,L] mask => y: y = Attention(q, k, v, mask)""",
    "RotaryEmbedding": """float[N,2,T,8] x, float[N,T,4] c, float[N,T,4] s => y:
        y = RotaryEmbedding(x, c, s)""",
    "RMSNormalization": "float[N,T,8] x, float[8] s => y: y = RMSNormalization(x, s)",
    "A causal mask of sizes": """float[N,T,4] x, float[N,L,4] past => y:
        all = Concat<axis = 1>(past, x) s = Shape(x) a = Shape(all)
        one = Constant<value_int = 1>() zero = Constant<value_int = 0>()
        t = Gather(s, one) l = Gather(a, one) p = Sub(l, t)
        rows = Range(p, l, one) columns = Range(zero, l, one)
        i = Constant<value_ints = [1]>() r = Unsqueeze(rows, i)
        later = Greater(columns, r) low = Constant<value_float = -1000.0>()
        nought = Constant<value_float = 0.0>() mask = Where(later, low, nought)
        at = Transpose<perm = [0, 2, 1]>(all) scores = MatMul(x, at) masked = Add(scores, mask)
        p2 = Softmax(masked) y = MatMul(p2, all)""",
    # Control flow and sequences.
    "Loop over an open number of iterations": """float[N,T] x => y:
        s = Shape(x) one = Constant<value_int = 1>() t = Gather(s, one)
        yes = Constant<value = bool {1}>() zero = Constant<value_int = 0>()
        first = Gather<axis = 1>(x, zero)
        y = Loop(t, yes, first) <body = b (int64 i, bool c, float[N] a) => (bool d, float[N] e) {
            row = Gather<axis = 1>(x, i) e = Add(a, row) d = Identity(c)
        }>""",
    "Scan": """float[N] first, float[T,N] x => last, y:
        last, y = Scan<num_scan_inputs = 1, body = b (float[N] a, float[N] r) =>
            (float[N] e, float[N] o) { e = Add(a, r) o = Mul(e, r) }>(first, x)""",
    "SplitToSequence": """float[N,6,L] x => y:
        s = SplitToSequence<axis = 1>(x) i = Constant<value_int = 2>() y = SequenceAt(s, i)""",
    "NonMaxSuppression": """float[1,L,4] boxes, float[1,M,L] scores => y:
        k = Constant<value_int = 3>() o = Constant<value_float = 0.4>()
        y = NonMaxSuppression(boxes, scores, k, o)""",
    # Parts of networks.
    "U-Net with pools that round up": """float[N,2,H,W] x, float[4,2,3,3] w1, float[4,4,3,3] w2,
        float[4,8,3,3] w3 => y:
        a = Conv<pads = [1, 1, 1, 1]>(x, w1)
        b = MaxPool<kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1>(a)
        c = Conv<pads = [1, 1, 1, 1]>(b, w2)
        d = MaxPool<kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1>(c)
        e = Conv<pads = [1, 1, 1, 1]>(d, w2)
        s1 = Shape<start = 2>(c) f = Resize<mode = "linear", axes = [2, 3]>(e, , , s1)
        g = Concat<axis = 1>(f, c) h = Conv<pads = [1, 1, 1, 1]>(g, w3)
        s2 = Shape<start = 2>(a) i = Resize<mode = "linear", axes = [2, 3]>(h, , , s2)
        j = Concat<axis = 1>(i, a) y = Conv<pads = [1, 1, 1, 1]>(j, w3)""",
    "U-Net with padded skips": """float[N,2,H,W] x, float[2,2,2,2] up => y:
        small = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)
        back = ConvTranspose<strides = [2, 2]>(small, up)
        sx = Shape<start = 2>(x) sb = Shape<start = 2>(back) d = Sub(sx, sb)
        two = Constant<value_ints = [2]>() before = Div(d, two) after = Sub(d, before)
        pads = Concat<axis = 0>(before, after) a = Constant<value_ints = [2, 3]>()
        padded = Pad(back, pads, , a) y = Concat<axis = 1>(x, padded)""",
    "Feature pyramid": """float[N,2,H,W] x, float[3,2,3,3] w1, float[3,3,3,3] w2 => y:
        a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w1)
        b = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(a, w2)
        s = Shape(a) r = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric",
            nearest_mode = "floor">(b, , , s)
        y = Add(a, r)""",
    "Positions of patches": """float[N,3,H,W] x, float[4,3,2,2] w, float[1,4,5,5] position => y:
        a = Conv<strides = [2, 2]>(x, w) s = Shape<start = 2>(a)
        p = Resize<mode = "cubic", axes = [2, 3]>(position, , , s)
        b = Add(a, p) t = Constant<value_ints = [0, 0, -1]>() c = Reshape(b, t)
        d = Transpose<perm = [0, 2, 1]>(c) e = Softmax(d) y = MatMul(e, c)""",
    "Windows of attention": """float[N,4,H,W] x => y:
        hw = Shape<start = 2>(x) m = Constant<value_ints = [3]>() n = Neg(hw) more = Mod(n, m)
        zero = Constant<value_ints = [0, 0]>() ends = Concat<axis = 0>(zero, more)
        axes = Constant<value_ints = [2, 3]>() padded = Pad(x, ends, , axes)
        n4 = Shape<end = 2>(x) all = Shape<start = 2>(padded) rows = Div(all, m)
        h1 = Constant<value_ints = [0]>() w1 = Constant<value_ints = [1]>()
        hr = Gather(rows, h1) wr = Gather(rows, w1)
        split = Concat<axis = 0>(n4, hr, m, wr, m) a = Reshape(padded, split)
        b = Transpose<perm = [0, 2, 4, 3, 5, 1]>(a) flat = Constant<value_ints = [-1, 9, 4]>()
        windows = Reshape(b, flat) t = Transpose<perm = [0, 2, 1]>(windows)
        scores = MatMul(windows, t) p = Softmax(scores) z = MatMul(p, windows)
        four = Constant<value_ints = [4]>() n1 = Shape<end = 1>(x)
        back = Concat<axis = 0>(n1, hr, wr, m, m, four) c = Reshape(z, back)
        d = Transpose<perm = [0, 5, 1, 3, 2, 4]>(c) joined = Concat<axis = 0>(n4, all)
        e = Reshape(d, joined) f = Constant<value_ints = [0, 0]>() y = Slice(e, f, hw, axes)""",
    # What a run counts.
    "Scatter of what is counted": """float[L,M] x => y:
        z = Constant<value_ints = [0]>() a = Constant<value_ints = [1]>()
        m = ReduceSum<keepdims = 0>(x, a) c = Relu(m) i = NonZero(c)
        it = Transpose(i) f = Squeeze(i, z) rows = Gather<axis = 0>(x, f)
        double = Add(rows, rows) y = ScatterND(x, it, double)""",
    "Resize of what is counted": """float[1,2,L,4] x, bool[L] keep => y:
        k = Compress<axis = 2>(x, keep) s = Constant<value_ints = [5, 6]>()
        y = Resize<mode = "linear", axes = [2, 3]>(k, , , s)""",
    "Slice of what is counted": """float[N,L] x, bool[L] keep => y:
        k = Compress<axis = 1>(x, keep)
        b = Constant<value_ints = [-1]>() e = Constant<value_ints = [-9223372036854775807]>()
        a = Constant<value_ints = [1]>() s = Constant<value_ints = [-2]>()
        y = Slice(k, b, e, a, s)""",
    "Pad of what is counted": """float[N,L] x, bool[L] keep => y:
        k = Compress<axis = 1>(x, keep)
        l = Shape<start = 1>(k) full = Constant<value_ints = [6]>() r = Sub(full, l)
        zero = Constant<value_ints = [0, 0, 0]>() pads = Concat<axis = 0>(zero, r)
        y = Pad(k, pads)""",
    # com.microsoft.
    "SkipLayerNormalization": """float[N,T,8] x, float[N,T,8] z, float[8] s, float[8] b => y:
        y = com.microsoft.SkipLayerNormalization(x, z, s, b)""",
    "BiasGelu": "float[N,T,8] x, float[8] b => y: y = com.microsoft.BiasGelu(x, b)",
    "FusedMatMul": """float[N,T,L] x, float[N,M,L] z => y:
        y = com.microsoft.FusedMatMul<transB = 1, alpha = 0.5>(x, z)""",
    # Windows that are put together.
    "Col2Im": """float[N,12,L] x => y:
        i = Constant<value_ints = [1]>() l = Shape<start = 2>(x) h = Add(l, i)
        w = Constant<value_ints = [3]>() image = Concat<axis = 0>(h, w)
        block = Constant<value_ints = [2, 3]>() y = Col2Im(x, image, block)""",
    # Shapes.
    "Range": """float[N,L] x => y:
        z = Constant<value_int = 0>() one = Constant<value_int = 1>()
        two = Constant<value_int = 2>()
        s = Shape(x) l = Gather(s, one) y = Range(z, l, two)""",
    "Range below": """float[L] x, float[M] z => y:
        s = Shape(x) t = Shape(z) i = Constant<value_int = 0>() one = Constant<value_int = 1>()
        l = Gather(s, i) m = Gather(t, i) y = Range(l, m, one)""",
    "ConstantOfShape": "float[N,L] x => y: s = Shape(x) y = ConstantOfShape(s)",
    "Positions": """float[N,L] x => y:
        z = Constant<value_float = 0.0>() one = Constant<value_float = 1.0>()
        i = Constant<value_int = 1>() s = Shape(x) l = Gather(s, i) f = Cast<to = 1>(l)
        y = Range(z, f, one)""",
}


def build(text: str) -> Any:
    """A model of `inputs => outputs: nodes`."""
    head, body = text.split(":", 1)
    inputs, outputs = head.split("=>")
    results = ", ".join(f"float {name.strip()}" for name in outputs.split(","))
    opset = 23 if any(f"{name}(" in body or f"{name}<" in body for name in NEW) else 21
    sets = f'["" : {opset}, "com.microsoft" : 1]'
    program = f"<ir_version: 10, opset_import: {sets}> g ({inputs}) => ({results}) {{{body}}}"
    model = parser.parse_model(program)
    for value in model.graph.output:
        value.type.Clear()
    return model


def bounds_of(model: Any) -> dict[str, str]:
    """--dim of every size that a model leaves open."""
    shapes = [value.type.tensor_type.shape for value in model.graph.input]
    used = {dim.dim_param for shape in shapes for dim in shape.dim if dim.dim_param}
    return {name: f"{r[0]}..{r[-1]}:{r.step}" for name, r in SIZES.items() if name in used}


def feeds_of(model: Any, sizes: Mapping[str, int], rng: np.random.Generator) -> Arrays:
    """Random inputs. index3: from -3 to 2; order3: 0, 1 and 2 along each line; others as named."""
    made = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in tensor.shape.dim]
        kind = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        made[value.name] = _contents(value.name.split("/")[-1], shape, kind, sizes, rng)
    return made


def _contents(
    name: str, shape: Sequence[int], kind: Any, sizes: Mapping[str, int], rng: np.random.Generator
) -> Any:
    if name == "index3":
        return rng.integers(-3 if len(shape) < 3 else 0, 2, shape).astype(kind)
    if name == "order3":
        lines = rng.permuted(np.broadcast_to(np.arange(3), (shape[0], 3)), axis=1)
        return (lines if shape[0] != 3 or shape[1] != 1 else lines[0][:, None]).astype(kind)
    if name == "shuffled":
        axis = 0 if shape[-1] == 1 else 1
        line = np.arange(shape[axis]).reshape((-1, 1) if axis == 0 else (1, -1))
        return rng.permuted(np.broadcast_to(line, shape), axis=axis).astype(kind)
    if name == "lengths3":
        return rng.integers(1, 4, shape).astype(kind)
    if name == "steps":
        return rng.integers(1, sizes["T"] + 1, shape).astype(kind)
    if name == "batch":
        return rng.integers(0, sizes["N"], shape).astype(kind)
    if name in ("roi", "rois"):
        corner = rng.uniform(0, 3, (shape[0], 2))
        found = np.concatenate([corner, corner + rng.uniform(1, 5, (shape[0], 2))], 1)
        if name == "rois":
            found = np.concatenate([rng.integers(0, sizes["N"], (shape[0], 1)), found], 1)
        return found.astype(kind)
    if kind == np.bool_:
        return rng.random(shape) < 0.5
    return rng.standard_normal(shape).astype(kind)


def expected(model: bytes, feeds: Arrays) -> Arrays:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


@dataclass
class Opened:
    """A model with open sizes."""

    model: Any
    imported: ImportedModel

    @staticmethod
    def of(name: str, prefix: str = "") -> Opened:
        model = compose.add_prefix(build(MODELS[name]), prefix)
        source = model.SerializeToString()
        return Opened(model, import_model(source, dims=bounds_of(model)))

    def reference(self, sizes: dict[str, int], feeds: Arrays) -> Arrays:
        outputs = self.imported.outputs
        nodes = [tensor.node for tensor in outputs.values()]
        found = evaluate(nodes, feeds, sizes, self.imported.counts.nodes)
        return dict(zip(outputs, found, strict=True))

    def worlds(self) -> Iterator[tuple[dict[str, int], Arrays, Arrays | None]]:
        """Sizes, inputs and what they must give: at the least, a middle and the greatest sizes."""
        for number, pick in enumerate((min, lambda r: r[len(r) // 2], max)):
            sizes = {name: pick(values) for name, values in SIZES.items()}
            feeds = feeds_of(self.model, sizes, np.random.default_rng(number))
            yield sizes, feeds, expected(self.model.SerializeToString(), feeds)


def check(got: Arrays, wanted: Arrays, label: str) -> None:
    for name, array in wanted.items():
        error = 1e-4 * max(1.0, float(np.abs(array).max(initial=0)))
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=error, err_msg=label)


@pytest.mark.parametrize("name", MODELS)
def test_at_every_size(name: str) -> None:
    """By the reference evaluator."""
    opened = Opened.of(name)
    for sizes, feeds, wanted in opened.worlds():
        check(opened.reference(sizes, feeds), wanted, f"{name} {sizes}")


MECHANISMS = (
    "Resize linear to another's size",
    "Resize nearest to another's size",
    "Resize cubic antialias to another's size",
    "Slice by -3 from the middle",
    "Slice an end of either sign",
    "Pad reflect by computed",
    "Pad or cut to a length",
    "CenterCropPad to another's size",
    "Split into thirds",
    "ScatterElements add",
    "ScatterND",
    "GridSample reflection",
    "MaxPool ceil with pads",
    "MaxPool with indices",
    "DFT onesided",
)
OTHERS = [name for name in MODELS if name not in MECHANISMS]
GROUPS = {
    "mechanisms": list(MECHANISMS),
    **{OTHERS[first]: OTHERS[first : first + 10] for first in range(0, len(OTHERS), 10)},
}


def check_one_program(some: Mapping[str, Opened], target: str, device: Device) -> None:
    """Compiled, these models are entries of one program, and right at all of their sizes."""
    graphs = Graphs({name: opened.imported.graph() for name, opened in some.items()})
    program = compile_graph(graphs, find_target(target)).program
    assert program is not None
    with Replay(program, device, poison=True) as replay:
        for name, opened in some.items():
            for sizes, feeds, wanted in opened.worlds():
                right = opened.reference(sizes, feeds) if wanted is None else wanted
                check(replay.run(feeds, name), right, f"{name} {sizes}")


@pytest.mark.parametrize("group", GROUPS)
def test_one_program(group: str, target: str, device: Device) -> None:
    some = {name: Opened.of(name, f"{number}/") for number, name in enumerate(GROUPS[group])}
    check_one_program(some, target, device)


TOO_SMALL = {
    "Squeeze": ("float[N,1] x => y: y = Squeeze(x)", "N may be 1", "N=2..4"),
    "Conv": ("float[1,2,L] x, float[3,2,5] w => y: y = Conv(x, w)", "L may be 3", "L=5..12"),
    "Pad": (
        """float[1,L] x => y:
            p = Constant<value_ints = [0, 0, 0, -5]>() y = Pad(x, p)""",
        "L - 5 is -2",
        "L=5..12",
    ),
    "Gather": (
        "float[1,L] x => y: i = Constant<value_int = -6>() y = Gather<axis = 1>(x, i)",
        "L may be 3",
        "L=6..12",
    ),
    "GatherElements": (
        """float[1,L] x => y: i = Constant<value = int64[1,2] {0, 4}>()
            y = GatherElements<axis = 1>(x, i)""",
        "L may be 3",
        "L=5..12",
    ),
    "Split": (
        """float[1,L] x, float[M] z => y, y2:
            m = Shape(z) l = Shape<start = 1>(x) r = Sub(l, m) p = Concat<axis = 0>(m, r)
            y, y2 = Split<axis = 1>(x, p)""",
        "L - M is -4",
        "other bounds",
    ),
}


@pytest.mark.parametrize("name", TOO_SMALL)
def test_sizes_that_do_not_fit_are_refused(name: str) -> None:
    """What would have fewer than no elements at some of the sizes, with the sizes that it takes."""
    text, because, advice = TOO_SMALL[name]
    model = build(text)
    with pytest.raises(InputError) as caught:
        import_model(model.SerializeToString(), dims=bounds_of(model))
    assert name in caught.value.subject and caught.value.id == "input.sizes"
    assert because in caught.value.because and advice in caught.value.next
    if "=" in advice:
        key, value = advice.split("=")
        assert import_model(model.SerializeToString(), dims={**bounds_of(model), key: value})


REFUSED = {
    "Resize by 1/3 of a float": """float[1,1,H,W] x => y:
        f = Constant<value_floats = [1.234567, 1.0]>()
        y = Resize<axes = [2, 3]>(x, , f)""",
    "Resize keeps its aspect": """float[1,1,H,W] x, float[L,M] z => y:
        s = Shape(z)
        y = Resize<axes = [2, 3], keep_aspect_ratio_policy = "not_larger">(x, , , s)""",
    "Resize of a region": """float[1,1,H,W] x => y:
        r = Constant<value_floats = [0.0, 0.1, 1.0, 0.9]>()
        s = Constant<value_ints = [5, 5]>()
        y = Resize<axes = [2, 3], coordinate_transformation_mode = "tf_crop_and_resize">
            (x, r, , s)""",
    "Resize of long signals": """float[1,1,Long] x, float[Other] z => y:
        s = Shape(z)
        y = Resize<mode = "linear", axes = [2]>(x, , , s)""",
    "DFT of long signals": "float[1,Long,1] x => y: y = DFT(x)",
    "STFT of open frames": """float[1,L,1] x, float[M] window => y:
        s = Constant<value_int = 1>() y = STFT(x, s, window)""",
    "GatherND of an open depth": "float[L,M,H] x, int64[1,N] i => y: y = GatherND(x, i)",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_open_sizes_cannot_be_is_refused(name: str) -> None:
    model = build(REFUSED[name])
    dims = {**bounds_of(model), "Long": "1..480000", "Other": "1..480000"}
    used = {dim.dim_param for i in model.graph.input for dim in i.type.tensor_type.shape.dim}
    with pytest.raises(UnsupportedOp) as caught:
        import_model(
            model.SerializeToString(), dims={key: dims[key] for key in used if key in dims}
        )
    error = caught.value
    assert name.split()[0] in error.subject and error.supported and "--dim" in error.next


BEYOND = {
    "Conv": "float[1,2,L,3] x => y: w = Constant<value = float[2,2,1,5] {ONES}>() y = Conv(x, w)",
    "MaxPool": "float[1,2,L,3] x => y: y = MaxPool<kernel_shape = [1, 5]>(x)",
    "AveragePool": "float[1,2,L,3] x => y: y = AveragePool<kernel_shape = [1, 5]>(x)",
    "LpPool": "float[1,2,L,3] x => y: y = LpPool<kernel_shape = [1, 5]>(x)",
}


@pytest.mark.parametrize("name", BEYOND)
def test_a_window_beyond_a_fixed_axis_is_named(name: str) -> None:
    """Beside an open one, whose size is not why."""
    model = build(BEYOND[name].replace("ONES", ", ".join(["1.0"] * 20)))
    with pytest.raises(ModelError) as caught:
        import_model(model.SerializeToString(), dims=bounds_of(model))
    assert name in caught.value.subject
    assert "a window that spans 5 does not fit axis 3 of 3" in caught.value.because
