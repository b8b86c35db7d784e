"""tf2onnx: functions of TensorFlow, models of Keras."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import onnx
import tensorflow as tf
import tf2onnx

from tests.exporters.recipes import Array, Recipe, main

RANDOM = np.random.default_rng(0)


def drawn(*shape: int) -> Any:
    """A weight. It is numpy's, because a tensor of TensorFlow would become an input."""
    return (RANDOM.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)


def written(
    make: Callable[[], Any], shape: Sequence[int | None], opset: int
) -> Callable[[Path], Any]:
    """A writer. shape: of the input; None is an open size, which is then 2."""

    def write(path: Path) -> Mapping[str, Array]:
        signature = [tf.TensorSpec(shape, tf.float32, name="x")]
        function = tf.function(make(), input_signature=signature)
        made, _ = tf2onnx.convert.from_function(function, signature, opset=opset)
        onnx.save(made, path)
        fixed = [2 if size is None else size for size in shape]
        values = np.random.default_rng(1).normal(size=fixed).astype(np.float32)
        return {made.graph.input[0].name: values}

    return write


def convolutions() -> Any:
    first, deep, last = drawn(3, 3, 3, 8), drawn(3, 3, 8, 2), drawn(16 * 16, 5)
    bias = drawn(8)

    def call(x: Any) -> Any:
        y = tf.nn.relu6(tf.nn.conv2d(x, first, 1, "SAME") + bias)
        y = tf.nn.depthwise_conv2d(y, deep, [1, 2, 2, 1], "SAME")
        y = tf.nn.max_pool2d(y, 2, 1, "SAME")
        return tf.nn.softmax(tf.matmul(tf.reshape(y, [-1, 256]), last))

    return call


def upscaled() -> Any:
    filters = drawn(3, 3, 4, 6)

    def call(x: Any) -> Any:
        y = tf.image.resize(x, [12, 12], method="bilinear")
        size = tf.stack([tf.shape(x)[0], 24, 24, 4])
        y = tf.nn.conv2d_transpose(tf.nn.conv2d(y, filters, 1, "SAME"), filters, size, 2, "SAME")
        return tf.image.resize(y, [30, 30], method="nearest")

    return call


def attention() -> Any:
    query, key, value = drawn(16, 16), drawn(16, 16), drawn(16, 16)

    def call(x: Any) -> Any:
        scores = tf.einsum("btc,bsc->bts", tf.matmul(x, query), tf.matmul(x, key)) / 4.0
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        rows = (x - mean) * tf.math.rsqrt(variance + 1e-5)
        return tf.matmul(tf.nn.softmax(scores), tf.matmul(rows, value))

    return call


def loop() -> Any:
    weight = drawn(6, 6)

    def call(x: Any) -> Any:
        state = tf.zeros([tf.shape(x)[0], 6])
        for step in tf.range(5):
            state = tf.tanh(tf.matmul(state, weight) + x[:, step])
        return state

    return call


def keras_network() -> Any:
    layers = tf.keras.layers
    network = tf.keras.Sequential(
        [
            layers.Input((8, 8, 3)),
            layers.Conv2D(8, 3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(5, activation="softmax"),
        ]
    )
    return lambda x: network(x, training=False)


def keras_recurrent() -> Any:
    layers = tf.keras.layers
    network = tf.keras.Sequential(
        [layers.Input((5, 6)), layers.LSTM(8, return_sequences=True), layers.GRU(4)]
    )
    return lambda x: network(x, training=False)


def _recipes() -> Iterator[Recipe]:
    made: Mapping[str, tuple[Callable[[], Any], Sequence[int | None]]] = {
        "convolutions": (convolutions, (2, 8, 8, 3)),
        "convolutions.open": (convolutions, (None, 8, 8, 3)),
        "upscaled": (upscaled, (1, 6, 6, 4)),
        "attention": (attention, (2, 5, 16)),
        "attention.open": (attention, (None, 5, 16)),
        "loop": (loop, (2, 5, 6)),
        "keras.convolutions": (keras_network, (2, 8, 8, 3)),
        "keras.recurrent": (keras_recurrent, (2, 5, 6)),
    }
    for name, (make, shape) in made.items():
        for opset in (13, 18):
            said = f"from_function of {name} in opset {opset}, input {list(shape)}"
            yield Recipe(f"{name}.{opset}", said, written(make, shape, opset))


RECIPES = [*_recipes()]

if __name__ == "__main__":
    main(RECIPES, ["onnx", "tf2onnx", "tensorflow-cpu"])
