"""What somebody writes who knows numpy or torch: it works, or the error says what to write."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinyedge import Tensor, nn
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
        (lambda: x.reshape(-1, -1), r"to \[-1, -1\]: one size may be -1"),
        (lambda: x.reshape((-2, -3)), "one size may be -1"),
        (lambda: x.reshape((2.0, 3)), "'float' object"),
        (lambda: x.permute((5, 0)), "axis 5 of a tensor with 2 axes"),
        (lambda: x.transpose(5, 0), "axis 5 of a tensor with 2 axes"),
        (lambda: x.unsqueeze(9), "axis 9"),
        (lambda: x.squeeze(0), r"squeeze of axis 0 of \[2, 3\]"),
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
        (lambda: Tensor.zeros(2, 3), "3 is no type of elements"),
        (lambda: Tensor.arange(2, 5), "5 is no type of elements"),
        (lambda: Tensor.arange(-1), "no size is below 0"),
        (lambda: x.cast("string"), "'string' is no type of elements"),
        (lambda: x.cast(complex), "no tinyedge type for numpy's complex128"),
        (lambda: len(x.sum()), "a scalar tensor has no length"),
        (lambda: list(x.sum()), "a scalar tensor has no length"),
    ],
)
def test_the_error_says_why(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError, IndexError), match=message):
        call()


def test_copies_and_pickles() -> None:
    layer = nn.Linear(2, 3)
    assert copy.deepcopy(layer).weight is layer.weight and copy.copy(x) is x
    for tensor in (x, (x * 2).realize(), x.bfloat16(), x.sum(), Tensor(INTS, dt.int4)):
        back = pickle.loads(pickle.dumps(tensor))
        assert back.dtype is tensor.dtype and back.shape == tensor.shape
        assert (back.float().numpy() == tensor.float().numpy()).all()
