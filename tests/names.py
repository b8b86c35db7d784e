"""Models whose names are words of the languages that kernels, runtimes and tools are written in."""

from __future__ import annotations

import keyword
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper

import tinyedge

C = """
    auto break case char const continue default do double else enum extern float for goto if inline
    int long register restrict return short signed sizeof static struct switch typedef union
    unsigned void volatile while _Bool _Complex _Alignas main NULL bool true false
"""
CPP = """
    alignas and asm catch char8_t class concept constexpr decltype delete dynamic_cast explicit
    export friend mutable namespace new noexcept nullptr operator private protected public requires
    template this throw try typeid typename using virtual wchar_t xor
"""
OPENCL = """
    __kernel kernel __global global __local local __constant constant __private image2d_t sampler_t
    read_only write_only half float4 uchar vload4 barrier get_global_id
"""
CUDA = "__global__ __shared__ __device__ blockIdx threadIdx warpSize __launch_bounds__ half2 dim3"
WGSL = """
    fn let var override array atomic bitcast f32 f16 i32 u32 vec4 mat4x4 ptr storage workgroup
    uniform function loop continuing discard diagnostic enable alias const_assert active self super
    group thread b0 k0 te_max_f32
"""
JS = """
    arguments await constructor debugger eval finally get hasOwnProperty import in instanceof
    interface length name of prototype __proto__ set static super toString typeof undefined valueOf
    with yield NaN Infinity
"""
WORDS = [*dict.fromkeys([*keyword.kwlist, *" ".join((C, CPP, OPENCL, CUDA, WGSL, JS)).split()])]
FALLING_TOGETHER = ["a.b", "a_b", "a-b", "A_B", "a b", "_a_b", "a/b", "x", "x_name", "x_shape", "X"]
HOSTILE = ["</script>", "*/ #error", "\\", '"', "%s", "${x}", "`", "名前", "\u202e", "x" * 1000]
ALL = [*WORDS, *FALLING_TOGETHER, *HOSTILE]
ROLES = 3


def named_model(turn: int) -> tuple[ModelProto, dict[str, Any], dict[str, Any]]:
    """A third of the names are inputs, of initializers, of outputs; all are nodes'.

    turn: which third is what. Returns the model, values of its inputs, and its right outputs.
    """
    inputs, weights, outputs = (ALL[(turn + role) % ROLES :: ROLES] for role in range(ROLES))
    feeds, right, nodes, stored = {}, {}, [], []
    for number, (x, w, y) in enumerate(zip(inputs, weights, outputs, strict=False)):
        feeds[x] = np.arange(3, dtype=np.float32) + number
        value = np.full(3, number % 7, np.float32)
        stored.append(numpy_helper.from_array(value, w))
        nodes.append(helper.make_node("Add", [x, w], [y], name=ALL[number]))
        right[y] = feeds[x] + value
    graph = helper.make_graph(
        nodes,
        "main",
        [helper.make_tensor_value_info(name, 1, [3]) for name in feeds],
        [helper.make_tensor_value_info(name, 1, [3]) for name in right],
        stored,
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8), feeds, right


def counter(path: Path, state: str, given: str, output: str) -> Path:
    """output = state + given, which is the next state."""
    nodes = [helper.make_node("Add", [state, given], [output], name=output)]
    infos = [helper.make_tensor_value_info(name, 1, [2]) for name in (state, given, output)]
    graph = helper.make_graph(nodes, state, infos[:2], infos[2:])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def counters(folder: Path, target: str) -> tuple[list[str], Path]:
    """A bundle in which states, entries and files have such names; the first entry is `main`."""
    words = ["while", "__proto__", "constructor", "fn", "kernel", "</script>", "a.b", "a_b"]
    paths = [
        counter(folder / f"{word.replace('/', '')}.onnx", word, f"var {word}", f"new {word}")
        for word in words
    ]
    bundle = tinyedge.export_onnx(
        paths[0],
        target=target,
        out=folder / "__proto__",
        entries=dict(zip(words[1:], paths[1:], strict=True)),
        states={word: f"new {word}:keep" for word in words},
        golden=False,
    )
    return words, bundle
