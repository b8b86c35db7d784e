"""Random numbers beside known answers, on all targets, and what their distributions must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.agreement import Inputs, compiled, find_target, run
from tinyedge import Tensor, grad, random
from tinyedge.core import dtype as dt

# Counter, key and result of Threefry-2x32-20: the known answers that Random123 1.14 brings.
KNOWN = (
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
)
MILLION = 1 << 20


def words(*values: int) -> Any:
    return np.array(values, np.uint32)


@pytest.mark.parametrize("counter, key, expected", KNOWN)
def test_known_answers(
    counter: tuple[int, int], key: tuple[int, int], expected: tuple[int, int]
) -> None:
    high, low = (Tensor(words(word)) for word in counter)
    found = random.threefry(Tensor(words(*key)), high, low)
    assert tuple(int(word.numpy()[0]) for word in found) == expected


def test_keys_and_uniform_numbers_are_those_of_jax() -> None:
    """The values that JAX's documentation shows (docs.jax.dev, jax.random)."""
    key = random.key(0)
    assert f"{random.uniform(key, ()).numpy():.6g}" == "0.947667"
    _, subkey = random.split(key)
    assert f"{random.uniform(subkey, ()).numpy():.6g}" == "0.00729382"


def by_hand(key: Any, count: int) -> Any:
    """The bits of a key, in numpy."""
    words = [*map(int, key)]
    words.append(words[0] ^ words[1] ^ 0x1BD11BDA)
    a = np.full(count, words[0], np.uint32)
    b = np.arange(count, dtype=np.uint32) + np.uint32(words[1])
    for step in range(20):
        turn = ((13, 15, 26, 6), (17, 29, 16, 24))[step // 4 % 2][step % 4]
        a = a + b
        b = (b << np.uint32(turn) | b >> np.uint32(32 - turn)) ^ a
        if step % 4 == 3:
            group = step // 4 + 1
            a = a + np.uint32(words[group % 3])
            b = b + np.uint32((words[(group + 1) % 3] + group) % 2**32)
    return a ^ b


def test_a_million_on_every_target(target: str, device: Any) -> None:
    inputs = Inputs()
    key = inputs.new(words(7, 2**32 - 5))
    outputs = {"u": random.uniform(key, (MILLION,))}
    made = compiled(outputs, inputs, find_target(target))
    assert len(made.launches) == 1
    found = run(outputs, inputs, target, device)["u"]
    expected = (by_hand((7, 2**32 - 5), MILLION) >> 9).astype(np.float32) * np.float32(2**-23)
    assert (found.view(np.uint32) == expected.view(np.uint32)).all()


def test_what_is_drawn_agrees_on_every_target(target: str, device: Any) -> None:
    inputs = Inputs()
    key = inputs.new(words(1, 2))
    first, second = random.split(key)
    outputs = {
        "integers": random.randint(first, (1000,), -7, 2**31 - 1),
        "bytes": random.randint(second, (1000,), 0, 256, dt.uint8),
        "mask": random.bernoulli(random.fold_in(key, 3), (10, 100), 0.25),
        "order": random.permutation(key, 300),
        "normal": random.normal(key, (1000,)),
    }
    held = Tensor(words(1, 2))
    found = run(outputs, inputs, target, device)
    first, second = random.split(held)
    assert (found["integers"] == random.randint(first, (1000,), -7, 2**31 - 1).numpy()).all()
    assert (found["bytes"] == random.randint(second, (1000,), 0, 256, dt.uint8).numpy()).all()
    assert (
        found["mask"] == random.bernoulli(random.fold_in(held, 3), (10, 100), 0.25).numpy()
    ).all()
    assert (found["order"] == random.permutation(held, 300).numpy()).all()
    assert np.abs(found["normal"] - random.normal(held, (1000,)).numpy()).max() < 1e-4


def test_uniform_numbers_fill_their_range() -> None:
    drawn = random.uniform(random.key(0), (100_000,), -2.0, 6.0).numpy()
    assert -2 <= drawn.min() < -1.999 and 5.999 < drawn.max() < 6
    counts = np.histogram(drawn, 64, (-2, 6))[0]
    assert ((counts - 100_000 / 64) ** 2 / (100_000 / 64)).sum() < 120  # chi-squared, 63 degrees


@pytest.mark.parametrize("dtype", (dt.float16, dt.bfloat16, dt.float64))
def test_no_uniform_number_is_rounded_to_1(dtype: Any) -> None:
    drawn = np.asarray(random.uniform(random.key(5), (50_000,), dtype=dtype).numpy(), np.float64)
    assert 0 <= drawn.min() < 0.001 + 2.0**-8 and 0.99 < drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 0.006


def test_normal_numbers_have_the_moments() -> None:
    for dtype in (dt.float32, dt.float64):
        drawn = random.normal(random.key(1), (200_000,), 3.0, 2.0, dtype).numpy().astype(float)
        z = (drawn - 3) / 2
        assert np.isfinite(z).all() and drawn.dtype == np.float64
        moments = [abs((z**power).mean() - m) for power, m in ((1, 0), (2, 1), (3, 0), (4, 3))]
        assert (np.array(moments) < (0.01, 0.015, 0.03, 0.08)).all()
        assert 4 < np.abs(z).max() < 6.8


@pytest.mark.parametrize(
    "low, high, dtype",
    (
        (0, 1, dt.int32),
        (-3, 4, dt.int8),
        (-(2**31), 2**31 - 1, dt.int32),
        (0, 2**32 - 1, dt.uint32),
        (2**40, 2**40 + 10, dt.int64),
        (0, 1000, dt.int64),
    ),
)
def test_integers_are_within_their_range(low: int, high: int, dtype: Any) -> None:
    """Beside the product of 64-bit fractions in Python's integers."""
    key = random.key(9)
    drawn = random.randint(key, (2000,), low, high, dtype).numpy()
    assert drawn.dtype == dtype.numpy
    pair = random.threefry(key, Tensor.full((2000,), 0, dt.uint32), Tensor.arange(2000, dt.uint32))
    upper, lower = (word.numpy() for word in pair)
    expected = [
        low + ((int(a) * 2**32 + int(b)) * (high - low) >> 64)
        for a, b in zip(upper, lower, strict=True)
    ]
    assert drawn.tolist() == expected


def test_wrong_requests_are_refused() -> None:
    key = random.key(0)
    with pytest.raises(ValueError, match="randint of int8 from 0 to 1000"):
        random.randint(key, (1,), 0, 1000, dt.int8)
    with pytest.raises(TypeError, match=r"a key is uint32 \[2\], not float32 \[2\]"):
        random.bits(Tensor.full((2,), 0, dt.float32), (3,))
    with pytest.raises(ValueError, match="seed -1"):
        random.key(-1)
    with pytest.raises(ValueError, match="a dropout rate of 2"):
        random.dropout(Tensor.full((2,), 1, dt.float32), key, 2)


@pytest.mark.parametrize("length", (0, 1, 2, 1000, 2000))
def test_a_permutation_has_every_place_once(length: int) -> None:
    order = random.permutation(random.key(4), length).numpy()
    assert sorted(order.tolist()) == list(range(length))
    assert length < 3 or (order != np.arange(length)).any()


def test_rows_are_permuted_whole() -> None:
    x = np.arange(60, dtype=np.float32).reshape(20, 3)
    moved = random.permutation(random.key(4), Tensor(x)).numpy()
    assert (moved == x[random.permutation(random.key(4), 20).numpy()]).all()


def test_places_are_drawn_by_their_chances() -> None:
    chances = np.array([[0.1, 0.2, 0.7], [1.0, 0.0, 0.0]], np.float32)
    with np.errstate(divide="ignore"):
        logits = np.log(chances)
    drawn = random.categorical(random.key(2), Tensor(logits), shape=(20_000,)).numpy()
    assert drawn.shape == (20_000, 2)
    counts = np.stack([np.bincount(column, minlength=3) for column in drawn.T]) / 20_000
    assert np.abs(counts - chances).max() < 0.012


def test_dropout_keeps_the_mean_and_its_gradient_the_mask() -> None:
    key = random.key(8)
    x = Tensor.weight("x", np.full((200, 50), 3, np.float32))
    dropped = random.dropout(x, key, 0.25).numpy()
    assert set(np.unique(dropped).tolist()) == {0.0, 4.0}
    assert abs((dropped == 0).mean() - 0.25) < 0.015
    slope = grad(lambda x: random.dropout(x, key, 0.25).sum())(x).numpy()
    assert (slope == dropped / 3).all()


def test_keys_differ_and_a_generator_goes_on() -> None:
    key = random.key(3)
    keys = [*random.split(key, 5), random.fold_in(key, 0), random.fold_in(key, 1)]
    seen = {tuple(k.numpy().tolist()) for k in keys}
    # The first of `split` and `fold_in(key, 0)` are one counter of one key.
    assert len(seen) == 5
    one, two = random.Generator(3), random.Generator(3)
    assert (one.uniform((4,)).numpy() == two.uniform((4,)).numpy()).all()
    assert (one.uniform((4,)).numpy() != random.Generator(3).uniform((4,)).numpy()).all()
