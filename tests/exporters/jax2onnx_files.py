"""jax2onnx: functions of JAX, a module of Flax, a module of Equinox."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox
import jax
import numpy as np
import onnx
from flax import nnx
from jax import lax
from jax import numpy as jnp
from jax2onnx import to_onnx

from tests.exporters.recipes import Array, Recipe, main

RANDOM = np.random.default_rng(0)
Sizes = Sequence[Any]


def drawn(*shape: int) -> Any:
    return jnp.asarray(RANDOM.normal(size=shape) / np.sqrt(shape[0]), jnp.float32)


def written(make: Callable[[], Any], *shapes: Sizes) -> Callable[[Path], Any]:
    """A writer. shapes: of the inputs; a name stands for an open size, which is then 2."""

    def write(path: Path) -> Mapping[str, Array]:
        made = to_onnx(make(), inputs=[tuple(shape) for shape in shapes], model_name="model")
        onnx.save(made, path)
        random = np.random.default_rng(1)
        fixed = [[2 if isinstance(size, str) else size for size in shape] for shape in shapes]
        return {
            port.name: random.normal(size=shape).astype(np.float32)
            for port, shape in zip(made.graph.input, fixed, strict=True)
        }

    return write


def perceptron() -> Any:
    first, second = drawn(8, 16), drawn(16, 4)
    return lambda x: jax.nn.softmax(jax.nn.gelu(x @ first) @ second)


def attention() -> Any:
    query, key, value = drawn(16, 16), drawn(16, 16), drawn(16, 16)

    def call(x: Any) -> Any:
        scores = jnp.einsum("btc,bsc->bts", x @ query, x @ key) / 4.0
        mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
        return jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1) @ (x @ value)

    return call


def convolution() -> Any:
    kernel = drawn(3, 3, 3, 8)

    def call(x: Any) -> Any:
        layout = ("NHWC", "HWIO", "NHWC")
        y = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout)
        y = jax.nn.relu(y)
        return lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    return call


def scan() -> Any:
    weight = drawn(6, 6)

    def call(x: Any) -> Any:
        def step(state: Any, row: Any) -> Any:
            state = jnp.tanh(state @ weight + row)
            return state, state.sum()

        return lax.scan(step, jnp.zeros(6, jnp.float32), x)

    return call


def flax_network() -> Any:
    rngs = nnx.Rngs(0)
    return nnx.Sequential(
        nnx.Conv(3, 8, kernel_size=(3, 3), rngs=rngs),
        nnx.BatchNorm(8, use_running_average=True, rngs=rngs),
        nnx.relu,
        lambda x: nnx.avg_pool(x, window_shape=(2, 2), strides=(2, 2)),
        lambda x: x.reshape(x.shape[0], -1),
        nnx.Linear(8 * 4 * 4, 5, rngs=rngs),
    )


def flax_block() -> Any:
    rngs = nnx.Rngs(0)
    return nnx.Sequential(
        nnx.LayerNorm(16, rngs=rngs),
        nnx.Linear(16, 32, rngs=rngs),
        nnx.gelu,
        nnx.Linear(32, 16, rngs=rngs),
    )


def equinox_network() -> Any:
    made = equinox.nn.MLP(8, 4, 16, 2, key=jax.random.PRNGKey(0))
    return jax.vmap(made)


def _recipes() -> Iterator[Recipe]:
    made: Mapping[str, tuple[Callable[[], Any], Sizes]] = {
        "perceptron": (perceptron, (3, 8)),
        "perceptron.open": (perceptron, ("B", 8)),
        "attention": (attention, (2, 5, 16)),
        "attention.open": (attention, ("B", 5, 16)),
        "convolution": (convolution, (2, 8, 8, 3)),
        "scan": (scan, (7, 6)),
        "flax.convolutions": (flax_network, (2, 8, 8, 3)),
        "flax.block": (flax_block, (2, 5, 16)),
        "equinox.perceptron": (equinox_network, (3, 8)),
    }
    for name, (make, shape) in made.items():
        yield Recipe(name, f"to_onnx of {name}, input {list(shape)}", written(make, shape))


RECIPES = [*_recipes()]

if __name__ == "__main__":
    main(RECIPES, ["onnx", "jax2onnx", "jax", "flax", "equinox"])
