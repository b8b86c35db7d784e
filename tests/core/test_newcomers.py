"""What somebody writes who knows numpy or torch: it works, or the error says what to write."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinyedge import InputError, Tensor, export_onnx, nn, optim, random
from tinyedge.core import dtype as dt

X = np.arange(6, dtype=np.float32).reshape(2, 3)
x = Tensor(X)
INTS = np.array([1, 2], np.int32)


def set_item() -> None:
    x[0] = 1


@pytest.mark.parametrize(
    "call, expected",
    [
        (lambda: x.reshape(3, 2), X.reshape(3, 2)),
        (lambda: x.reshape(np.array([3, 2])), X.reshape(3, 2)),
        (lambda: x.permute(1, 0), X.T),
        (lambda: x.reshape(2, 1, 3).expand(2, 4, 3), np.repeat(X[:, None], 4, 1)),
        (lambda: x.sum(axis=np.int64(1)), X.sum(1)),
        (lambda: x.max(axis=(0, -1)), X.max()),
        (lambda: x.argmax(), X.argmax()),
        (lambda: abs(-x), X),
        (lambda: 2**+x, 2**X),
        (lambda: 7 // (x + 1), 7 // (X + 1)),
        (lambda: 7 % (x + 1), 7 % (X + 1)),
        (lambda: True & (x > 2), X > 2),
        (lambda: 5 ^ Tensor(INTS), 5 ^ INTS),
        (lambda: Tensor([1, 2], "float16"), np.array([1, 2], np.float16)),
        (lambda: x.cast(np.int32), X.astype(np.int32)),
        (lambda: list(x)[1], X[1]),
        (lambda: x[np.int64(-1)], X[-1]),
        (lambda: x.gather(0, [1, 0]), X[[1, 0]]),
        (lambda: x.gather(1, np.array([2])), X[:, [2]]),
        (lambda: x.masked_fill(X > 2, 0), np.where(X > 2, 0, X)),
        (lambda: (x > 2).where(X, 0), np.where(X > 2, X, 0)),
        (
            lambda: x.scatter_reduce(1, np.zeros((2, 3), np.int32), X, "amax"),
            np.maximum(X, X.max(1, keepdims=True) * [1, 0, 0]).astype(np.float32),
        ),
        (
            lambda: x.assign([(0, 1), (0, 2)], np.float32([[7, 8]])),
            np.float32([[7, 8, 2], [3, 4, 5]]),
        ),
        (lambda: nn.cross_entropy(x, INTS, reduction="sum").cast("int32"), np.int32(1)),
        (lambda: random.normal(random.key(0), 2).shape and x, X),
        (lambda: Tensor(INTS) ** 3, INTS**3),
        (lambda: x.masked_select(X > 2), X[X > 2]),
        (lambda: x.nll_loss(INTS), np.float32(-3.0)),
        (lambda: x.assign(((0, 1), (1, 3)), 9), np.float32([[0, 9, 9], [3, 4, 5]])),
        (lambda: x.interpolate(np.int64(6), "nearest"), X.repeat(2, 1)),
        (lambda: Tensor.einsum("ij,ij->i", x, X), (X * X).sum(1)),
        (lambda: x.masked_select(X > 2, size=3), X[1]),
        (
            lambda: nn.attention(X * 0, X * 0, X, X[:, :2] * 0),
            X.mean(0, keepdims=True).repeat(2, 0),
        ),
        (lambda: nn.relu(-X), np.zeros_like(X)),
        (lambda: nn.mse_loss(X, target=X + 2), np.float32(4)),
    ],
)
def test_it_works(call: Callable[[], Tensor], expected: Any) -> None:
    found = call().numpy()
    assert found.shape == np.shape(expected) and (found == expected).all()
    assert all(type(size) is int for size in call().shape)


@pytest.mark.parametrize(
    "call, message",
    [
        (set_item, "a tensor never changes: assign"),
        (lambda: x.assign(((0, 5), (0, 3)), 0.0), r"\(0, 5\), \(0, 3\)\] of \[2, 3\]"),
        (lambda: x.pad_to(1, 3), r"pad_to \[1, 3\] of \[2, 3\]: an axis is longer"),
        (lambda: x.shrink_to(-1, 2), r"shrink_to \[-1, 2\]: no size is below 0"),
        (lambda: x.reshape(-1, -1), r"to \[-1, -1\]: one size may be -1"),
        (lambda: x.reshape((-2, -3)), "one size may be -1"),
        (lambda: x.reshape((2.0, 3)), "a size of float 2.0"),
        (lambda: x.permute((5, 0)), "axis 5 of a tensor with 2 axes"),
        (lambda: x.transpose(5, 0), "axis 5 of a tensor with 2 axes"),
        (lambda: x.unsqueeze(9), "axis 9 of a tensor with 2 axes: it is from -3 to 2"),
        (lambda: x.squeeze(0), r"squeeze of axis 0 of \[2, 3\]: its size is 2, not 1"),
        (lambda: x.reshape(5, -1), r"to \[5, -1\]: 6 elements are no multiple of 5"),
        (lambda: x.topk(9), "topk of 9 along an axis of 3"),
        (lambda: x.sum(1.5), "an axis of float 1.5"),
        (lambda: x.sum(dim=0), "Tensor.sum.. got an unexpected keyword argument 'dim'"),
        (lambda: export_onnx("m", traget="cpu"), "^export_onnx.. got an unexpected"),
        (lambda: np.sum(x), "Tensor.sum.. got an unexpected keyword argument"),
        (lambda: x.where(x, 0), "where by float32: its condition is of bools"),
        (lambda: x.scatter(0, x, x), "scatter needs integer indices, not float32"),
        (lambda: x.scatter(0, INTS, INTS), r"scatter of \[2, 3\]"),
        (lambda: x.put(0, x), r"update_row of \[2, 3\]: a row of"),
        (lambda: x.gather(0, x), "gather needs integer indices"),
        (lambda: x.gather_elements(0, x), "gather_elements needs integer indices"),
        (lambda: x.gather(0, "ab"), "gather of str: it takes a tensor or an array"),
        (lambda: x << 1, "shl of float32"),
        (lambda: Tensor(INTS) ** 0.5, "pow of int32 by float: cast it"),
        (lambda: nn.relu(None), "relu of NoneType: it takes a tensor or an array"),
        (lambda: nn.load("model.onnx"), "its name is that of an ONNX model"),
        (lambda: x.stride(0, 0), "a window of 1 by strides of 0"),
        (lambda: Tensor.einsum(x, x), "einsum takes its equation first"),
        (lambda: x.pad((1, 1)), r"pad by \(1, 1\): it takes a pair for each of 2 axes"),
        (lambda: x.assign(0, 5), "assign by 0: it takes a pair for each of 2 axes"),
        (lambda: x.assign([(0, 1), (0, 2)], X), r"assign of \[2, 3\]: a value of"),
        (lambda: x.assign([(0, 1), (0, 1)], INTS), "assign of int32 into float32"),
        (lambda: x.conv2d(x), r"conv2d of \[2, 3\] with \[2, 3\]: it takes x \[N, C, \*S\]"),
        (lambda: x.interpolate((6.5, 8)), "a size of float 6.5"),
        (lambda: random.normal(0, (2,)), "int 0 is no key: tinyedge.random.key"),
        (lambda: nn.BatchNorm(3)(Tensor(np.ones((2, 4)))), r"BatchNorm of \[2, 4\], 3 channels"),
        (lambda: optim.Adam(1e-3, betas=0.9), "betas of 0.9: they are two"),
        (lambda: nn.save("a", [x]), "save of list: it takes tensors by name"),
        (lambda: x.expand((5, 2, 3)), "broadcast_to adds axes"),
        (lambda: x.gather(9, Tensor(INTS)), "axis 9"),
        (lambda: Tensor.cat([x, x], 7), "axis 7"),
        (lambda: Tensor.cat([], 0), "at least one"),
        (lambda: Tensor.cat([x, X], 0), "makes one of an array"),
        (lambda: x[1.0], "an index of float"),
        (lambda: x[True], "an index of bool"),
        (lambda: x[x > 2], "an index of Tensor: .* masked_select take bools"),
        (lambda: x[[0, 1]], "an index of list: .* gather takes integers"),
        (lambda: x[0, 0, 0], r"3 indices of \[2, 3\]"),
        (lambda: x[..., ...], "one ellipsis at most"),
        (lambda: x + [1, 2, 3], r"list \[1, 2, 3\] is neither a number"),
        (lambda: x * None, "NoneType None is neither"),
        (lambda: x + 2j, "complex 2j is neither"),
        (lambda: ~x, "not of float32: it takes bools or integers"),
        (lambda: x & x, "and of float32"),
        (lambda: Tensor.zeros((-1, 2)), "no size is below 0"),
        (lambda: Tensor.zeros(2, 3), r"3 is no type of elements: .* as \(2, 3\)"),
        (lambda: Tensor.arange(2, 5), "5 is no type of elements"),
        (lambda: Tensor.arange(-1), "no size is below 0"),
        (lambda: x.cast("string"), "'string' is no type of elements"),
        (lambda: x.cast(complex), "no tinyedge type for numpy's complex128"),
        (lambda: len(x.sum()), "a scalar tensor has no length"),
        (lambda: list(x.sum()), "a scalar tensor has no length"),
    ],
)
def test_the_error_says_why(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError, IndexError, InputError), match=message):
        call()


def test_copies_and_pickles() -> None:
    layer = nn.Linear(2, 3)
    assert copy.deepcopy(layer).weight is layer.weight and copy.copy(x) is x
    for tensor in (x, (x * 2).realize(), x.bfloat16(), x.sum(), Tensor(INTS, dt.int4)):
        back = pickle.loads(pickle.dumps(tensor))
        assert back.dtype is tensor.dtype and back.shape == tensor.shape
        assert (back.float().numpy() == tensor.float().numpy()).all()
