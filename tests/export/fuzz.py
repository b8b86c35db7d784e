"""Real models with something changed, and nodes that hardly any operator allows: an import ends in
success or in an error of a known kind.

python -m tests.export.fuzz [count] [seed]
"""

from __future__ import annotations

import itertools
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.export.hostile.build import info, model, node
from tests.imported import import_model
from tests.measured import within
from tests.models import path
from tinyedge.core.errors import InputError
from tinyedge.export.onnx import registry

MODELS: dict[str, dict[str, int | str]] = {
    "pnet": {"M1": 24, "M2": "16..64:2"},
    "rnet": {},
    "swift_f0": {"audio[1]": 16000},
}
NUMBERS = (0, -1, 1, 2, 3, 7, 100_000, 2**31 - 1, 2**31, 2**40, -(2**63), 2**63 - 1)
SECONDS = 10.0
TYPES = (1, 2, 3, 6, 7, 9, 10, 11, 13, 16)  # as ONNX numbers them: floats, integers, bool, bfloat16
VALUES: dict[str, Callable[[random.Random], Any]] = {
    "FLOAT": lambda rng: rng.choice([0.5, -1.0, 0.0, float("nan")]),
    "INT": lambda rng: rng.choice(NUMBERS),
    "STRING": lambda rng: rng.choice(["", "linear", "constant", "SAME_UPPER", "bogus"]),
    "FLOATS": lambda rng: [0.5] * rng.randrange(4),
    "INTS": lambda rng: [rng.choice([0, 1, -1, 2, 3]) for _ in range(rng.randrange(5))],
    "STRINGS": lambda rng: ["Tanh"] * rng.randrange(4),
}


def _operator(rng: random.Random, graph: Any) -> None:
    rng.choice(graph.node).op_type = rng.choice(registry.names())


def _input(rng: random.Random, graph: Any) -> None:
    node = rng.choice([n for n in graph.node if n.input])
    names = [name for n in graph.node for name in (*n.input, *n.output)]
    node.input[rng.randrange(len(node.input))] = rng.choice(names)


def _attribute(rng: random.Random, graph: Any) -> None:
    nodes = [n for n in graph.node if n.attribute]
    attribute = rng.choice(rng.choice(nodes).attribute)
    if attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(NUMBERS)
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i = rng.choice(NUMBERS)
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = rng.choice([float("nan"), float("inf"), -1.0, 0.0, 1e30])
    else:
        attribute.type = rng.randrange(1, 12)


def _weight_shape(rng: random.Random, graph: Any) -> None:
    weight = rng.choice([w for w in graph.initializer if w.dims])
    weight.dims[rng.randrange(len(weight.dims))] = rng.choice(NUMBERS)


def _weight_values(rng: random.Random, graph: Any) -> None:
    small = [w for w in graph.initializer if 8 <= len(w.raw_data) <= 64]
    weight = rng.choice(small or graph.initializer)
    values = [rng.choice(NUMBERS) for _ in range(len(weight.raw_data) // 8 + 1)]
    weight.raw_data = np.array(values, np.int64).tobytes()[: len(weight.raw_data)]


def _weight_type(rng: random.Random, graph: Any) -> None:
    rng.choice(graph.initializer).data_type = rng.randrange(24)


def _input_shape(rng: random.Random, graph: Any) -> None:
    for value in graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if rng.random() < 0.3:
                dim.dim_value = max(0, rng.choice(NUMBERS))


def _fewer(rng: random.Random, graph: Any) -> None:
    node = rng.choice([n for n in graph.node if n.input])
    if rng.random() < 0.5:
        node.ClearField("attribute")
    else:
        del node.input[rng.randrange(len(node.input)) :]


CHANGES: tuple[Callable[[random.Random, Any], None], ...] = (
    _operator,
    _input,
    _attribute,
    _weight_shape,
    _weight_values,
    _weight_type,
    _input_shape,
    _fewer,
)


def answer(model: onnx.ModelProto, **options: Any) -> str:
    """An error's id, or "imported". Raises what import_model should not."""
    try:
        import_model(model.SerializeToString(), **options)
    except InputError as error:
        return error.id
    return "imported"


def fuzz(count: int, seed: int) -> Counter[str]:
    """Error ids (or "imported") with how often each came. Raises what import_model should not."""
    rng = random.Random(seed)
    sources = {name: path(name).read_bytes() for name in MODELS}
    found: Counter[str] = Counter()
    for _ in range(count):
        name = rng.choice(list(MODELS))
        model = onnx.ModelProto.FromString(sources[name])
        for _ in range(rng.choice([1, 1, 2])):
            rng.choice(CHANGES)(rng, model.graph)
        start = time.process_time()
        found[answer(model, dims=MODELS[name])] += 1
        spent = time.process_time() - start
        assert within(spent, SECONDS), f"{name}: {spent:.1f} s"
    return found


def random_nodes(count: int, seed: int) -> Counter[str]:
    """The same of `count` models for every operator, each of one node: operands of any type and
    shape, some known and some missing, and attributes of the right types with any values.
    """
    rng = random.Random(seed)
    found: Counter[str] = Counter()
    for domain in ("", "com.microsoft"):
        for op, _ in itertools.product(registry.names(domain), range(count)):
            found[answer(_random_node(rng, op, domain))] += 1
    return found


def _random_node(rng: random.Random, op: str, domain: str) -> onnx.ModelProto:
    inputs, weights, names = [], [], []
    usual = rng.choice(TYPES)
    for name in [f"v{n}" for n in range(rng.randrange(6))]:
        kind = usual if rng.random() < 0.6 else rng.choice(TYPES)
        shape = [rng.randrange(4) for _ in range(rng.randrange(5))]
        if rng.random() < 0.4:
            values = [rng.choice([0, 1, 2, -1, 3]) for _ in range(math.prod(shape))]
            array = np.array(values).reshape(shape).astype(helper.tensor_dtype_to_np_dtype(kind))
            weights.append(onnx.numpy_helper.from_array(array, name))
        else:
            inputs.append(info(name, shape, kind))
        names.append(name if rng.random() < 0.95 else "")
    attributes = {}
    if onnx.defs.has(op, domain=domain):
        for name, attribute in onnx.defs.get_schema(op, domain=domain).attributes.items():
            if attribute.type.name in VALUES and rng.random() < 0.4:
                value = VALUES[attribute.type.name](rng)
                attributes[name] = helper.make_attribute(
                    name, value, attr_type=attribute.type.value
                )
    results = [f"y{n}" for n in range(rng.choice([1, 1, 1, 2, 3]))]
    only = node(op, names, results, domain=domain)
    only.attribute.extend(attributes.values())
    return model(
        [only],
        inputs=inputs,
        outputs=["y0"],
        weights=weights,
        opset=rng.choice([9, 11, 13, 22, 23]),
        domains=[domain] if domain else [],
    )


def main() -> None:
    count, seed = (int(a) for a in (*sys.argv[1:], *("1000", "0")[len(sys.argv) - 1 :]))
    found = fuzz(count, seed) + random_nodes(count // 10, seed)
    for kind, number in found.most_common():
        print(f"{number:6} {kind}")


if __name__ == "__main__":
    main()
