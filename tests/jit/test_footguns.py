"""What goes wrong, silently or not, with a tracing jit that keeps its buffers: tinygrad 0.14 lists
six cases that are silently wrong and ten that are refused or frozen, in its tests of its jit. Here
each gives what the function without a jit gives, or an error that names the line.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tinyedge import Dim, Tensor, TraceError, device, jit
from tinyedge.core.errors import InputError

pytestmark = pytest.mark.eager
FILE = re.escape("test_footguns.py")


@pytest.fixture(autouse=True, params=["reference", "cpu"])
def place(request: pytest.FixtureRequest) -> Iterator[None]:
    with device(request.param):
        yield


def of(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32)).realize()


# Silent there.


def test_results_do_not_share_memory() -> None:
    total = jit(lambda x: x.sum())
    results = [total(of(n, n)) for n in range(1, 5)]
    assert [result.item() for result in results] == [2, 4, 6, 8]


def test_a_result_may_be_the_next_argument() -> None:
    step = jit(lambda x: x + 1.0)
    step(of(10))
    kept = step(of(20))
    assert step(kept).item() == 22
    assert step(of(100)).item() == 101
    assert kept.item() == 21


def test_numbers_around_a_function_are_read_at_each_call() -> None:
    factor = 1.0

    @jit
    def scaled(x: Tensor) -> Tensor:
        return x * factor

    found = []
    for factor in (1.0, 2.0, 3.0, 4.0, 2.0):  # noqa: B007  what the closure reads
        found.append(scaled(of(10)).item())
    assert found == [10, 20, 30, 40, 20]
    assert len(scaled.variants) == 4


def test_branches_on_numbers_are_taken_at_each_call() -> None:
    @jit
    def either(x: Tensor, squared: bool) -> Tensor:
        return x * x if squared else x * 2.0

    assert [either(of(3), flag).item() for flag in (True, False, True, True)] == [9, 6, 9, 9]


class Scaled:
    def __init__(self, scale: float) -> None:
        self.scale = of(scale)

    @jit
    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def test_a_method_belongs_to_its_object() -> None:
    Scaled.forward.variants.clear()
    two, three = Scaled(2), Scaled(3)
    assert [two.forward(of(5)).item() for _ in range(3)] == [10, 10, 10]
    assert three.forward(of(5)).item() == 15
    two.scale = of(7)
    assert two.forward(of(5)).item() == 35
    assert len(Scaled.forward.variants) == 1


def test_what_is_written_to_a_slice_is_seen_by_the_read_after_it() -> None:
    cache = of(0, 0, 0, 0)

    @jit
    def filled(cache: Tensor, ones: Tensor) -> Tensor:
        return cache.assign(((0, 2),), ones).sum()

    for _ in range(4):
        assert filled(cache, of(1, 1)).item() == 2
    assert cache.tolist() == [0, 0, 0, 0]


# Refused there.


def test_constants_are_arguments() -> None:
    product = jit(lambda a, b: a * b)
    for value in (2.0, 3.0, 4.0):
        given = Tensor(np.float32(value))
        assert product(of(1, 2, 3), given).tolist() == [value, 2 * value, 3 * value]
    assert len(product.variants) == 1


def test_results_may_hold_other_things() -> None:
    both = jit(lambda x, n: (x * 2.0, n * 10, {"name": "x", "none": None}))
    for n in range(3):
        tensor, number, rest = both(of(n), n)
        assert (tensor.item(), number, rest) == (2 * n, 10 * n, {"name": "x", "none": None})


def test_names_and_places_may_be_mixed() -> None:
    two = of(2)

    def divided(a: Tensor, b: Tensor = two) -> Tensor:
        return a / b

    quotient = jit(divided)
    assert quotient(of(6), of(3)).item() == 2
    assert quotient(b=of(3), a=of(6)).item() == 2
    assert quotient(of(6), b=of(3)).item() == 2
    assert quotient(of(6)).item() == 3
    assert len(quotient.variants) == 1
    with pytest.raises(TypeError, match="missing"):
        quotient()


def test_one_tensor_may_be_given_twice() -> None:
    difference = jit(lambda a, b: a - 2.0 * b)
    x, y = of(3), of(1)
    assert [difference(x, x).item(), difference(x, y).item(), difference(y, y).item()] == [
        -3,
        1,
        -1,
    ]


def test_a_jit_in_a_jit() -> None:
    inner = jit(lambda t: t + 1.0)
    outer = jit(lambda t: inner(t) * 3.0)
    assert [outer(of(n)).item() for n in range(1, 5)] == [6, 9, 12, 15]
    assert not inner.variants


def test_shapes_may_change() -> None:
    added = jit(lambda a, b: a + b)
    for size in (2, 2, 3, 2):
        x = Tensor(np.arange(size, dtype=np.float32))
        assert added(x, x).tolist() == [2 * k for k in range(size)]
    assert len(added.variants) == 2


def test_views_may_begin_elsewhere() -> None:
    base = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4)).realize()
    more = jit(lambda a: a + 1.0)
    for start in range(3):
        part = base.shrink(((0, 3), (start, start + 2)))
        np.testing.assert_array_equal(more(part).numpy(), part.numpy() + 1)
    assert len(more.variants) == 1


def test_a_function_may_compute_nothing() -> None:
    assert jit(lambda x: None)(of(1)) is None
    x = of(1)
    assert jit(lambda x: (x, 3))(x)[0].item() == 1
    assert jit(lambda x: Tensor([1.0, 2.0]))(x).tolist() == [1, 2]


def test_tensors_around_a_function_need_not_be_computed() -> None:
    x = Tensor([0.0])

    @jit
    def doubled() -> Tensor:
        return x * 2.0

    for n in range(5):
        x = Tensor([float(n)]) + 0.0
        assert doubled().item() == 2 * n
    assert len(doubled.variants) == 1


def test_effects_are_refused() -> None:
    calls = [0]

    @jit
    def counted(x: Tensor) -> Tensor:
        calls[0] += 1
        return x * 2.0

    with pytest.raises(TraceError, match=rf"(?s){FILE}:\d+.*changes what it reads: 'calls'"):
        counted(of(1))


def test_effects_on_arguments_are_refused() -> None:
    @jit
    def kept(x: Tensor, into: list[Tensor]) -> Tensor:
        into.append(x)
        return x

    with pytest.raises(TraceError, match="changes an argument"):
        kept(of(1), [])

    class Counter:
        count = 0
        last: Any = None

        @jit
        def next(self, x: Tensor) -> Tensor:
            self.last = x
            return x + 1.0

    with pytest.raises(TraceError, match="changes an argument: 'last'"):
        Counter().next(of(1))
    log: list[int] = [0]

    @jit
    def logged(x: Tensor) -> Tensor:
        log.append(1)
        return x

    with pytest.raises(TraceError, match="changes what it reads: 'log'"):
        logged(of(1))


# Values that are baked in there.


@pytest.mark.parametrize(
    "use",
    [
        lambda x: Tensor(x.tolist()),
        lambda x: Tensor.arange(int(x.sum().item())),
        lambda x: x if x.sum() > 1 else -x,
        lambda x: Tensor(x.numpy() * 2),
        lambda x: x * float(x.max()),
        lambda x: x + np.asarray(x),
        lambda x: Tensor(np.from_dlpack(x)),
    ],
)
def test_values_are_not_known_inside(use: Any) -> None:
    @jit
    def used(x: Tensor) -> Tensor:
        return use(x)

    with pytest.raises(TraceError, match=rf"{FILE}:\d+") as error:
        used(of(1, 1, 1))
    assert error.value.id == "jit.value"


def test_values_around_a_function_are_not_known_inside_either() -> None:
    limit = of(2)

    @jit
    def below(x: Tensor) -> Tensor:
        return x * 2.0 if limit.item() > 1 else x

    with pytest.raises(TraceError, match=rf"a tensor that the function reads, at .*{FILE}:\d+"):
        below(of(1))
    assert limit.item() == 2


# Beyond those: what a key cannot see is found by tracing again.


def test_random_numbers_are_found_by_tracing_again() -> None:
    @jit
    def noisy(x: Tensor) -> Tensor:
        y = x * 2.0
        return y + random.random()

    noisy(of(1))
    with pytest.raises(TraceError, match=rf"(?s)noisy at .*{FILE}:\d+.*the constant 0\.") as error:
        noisy(of(1))
    line = int(re.search(rf"{FILE}:(\d+)", str(error.value))[1])
    with open(__file__, encoding="utf-8") as file:
        assert "random.random()" in file.readlines()[line - 1]


def test_a_changing_order_of_operations_is_found() -> None:
    def steps() -> Any:
        yield from (0, 1, 2, 3)

    counter = steps()

    @jit
    def by_turns(x: Tensor) -> Tensor:
        return x.exp() if next(counter) != 1 else x.sin()

    by_turns(of(1))
    with pytest.raises(TraceError, match="it now has sin"):
        by_turns(of(1))


def test_arrays_around_a_function_may_change_in_place() -> None:
    array = np.ones(3, np.float32)

    @jit
    def added(x: Tensor) -> Tensor:
        return x + array

    assert added(of(1, 1, 1)).tolist() == [2, 2, 2]
    array[1] = 5
    assert added(of(1, 1, 1)).tolist() == [2, 6, 2]


SCALE = 2.0


class Holder:
    value = 3.0


class Net:
    def __call__(self, x: Tensor) -> Tensor:
        return x * SCALE * Holder.value


def helper(x: Tensor) -> Tensor:
    return x * SCALE


def test_what_functions_and_classes_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    one, two, three = jit(lambda x: helper(x)), jit(lambda x: net(x)), jit(Net())
    assert [f(of(1)).item() for f in (one, two, three)] == [2, 6, 6]
    monkeypatch.setattr("tests.jit.test_footguns.SCALE", 10.0)
    assert [f(of(1)).item() for f in (one, two, three)] == [10, 30, 30]
    monkeypatch.setattr(Holder, "value", 5.0)
    assert [f(of(1)).item() for f in (one, two, three)] == [10, 50, 50]


def test_what_attributes_are_computed_from_is_read_again() -> None:
    values = [1.0]

    class Net:
        @property
        def value(self) -> float:
            return values[0]

        @staticmethod
        def read() -> float:
            return values[0]

        @classmethod
        def read_too(cls) -> float:
            return values[0]

    net, raw = Net(), bytearray([1])
    read = (lambda: net.value, net.read, Net.read_too, lambda: raw[0])
    compiled = [jit(lambda x, read=each: x + read()) for each in read]
    for value in (1, 1, 5):
        values[0] = raw[0] = value
        assert [f(of(0)).item() for f in compiled] == [value] * 4


# Donated tensors.


def test_a_donated_tensor_is_no_more() -> None:
    @jit(donate=("x",))
    def step(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    x, one = of(1, 2), of(1, 1)
    held = (lambda: view.tolist(),) if x.device else ()
    view = x * 1.0
    new = step(x, one)
    for use in (x.numpy, (x + 1.0).numpy, lambda: step(x, one), lambda: step(one, x), *held):
        with pytest.raises(InputError, match=rf"(?s)donated to .*step.*{FILE}:\d+") as error:
            use()
        assert error.value.id == "jit.donated"
    assert "donated" not in repr(x)
    assert new.tolist() == [2, 3]
    assert step(new, one).tolist() == [3, 4]


def test_a_kept_result_survives_the_next_call() -> None:
    @jit(donate=("x",))
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1.0, x.sum()

    first, _ = step(of(1, 2))
    second, total = step(of(10, 20))  # where the first lies
    assert (first.tolist(), second.tolist(), total.item()) == ([2, 3], [11, 21], 30)
    third, _ = step(first)
    assert (third.tolist(), second.tolist()) == ([3, 4], [11, 21])


def test_arguments_may_change_places() -> None:
    @jit(donate=("a", "b"))
    def both(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return a + 1.0, b + 10.0

    a, b = both(of(0), of(0))
    assert [t.item() for t in both(b, a)] == [11, 11]


def test_a_donated_tensor_may_be_an_argument_too() -> None:
    @jit(donate=("a",))
    def added(a: Tensor, b: Tensor) -> Tensor:
        return a + 2.0 * b

    x = of(1)
    y = added(x, x)
    assert y.item() == 3
    assert added(y, y).item() == 9


def test_a_tensor_at_two_places_stays_one() -> None:
    @jit(donate=("model",))
    def step(model: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: leaf * 0.5 for name, leaf in model.items()}

    shared = of(8)
    model = {"in": shared, "out": shared, "own": of(8)}
    for value in (4, 2):
        model = step(model)
        assert model["in"] is model["out"] and model["own"] is not model["in"]
        assert [leaf.item() for leaf in model.values()] == [value] * 3


def test_what_is_donated_must_come_back() -> None:
    @jit(donate=("x",))
    def total(x: Tensor) -> Tensor:
        return x.sum()

    with pytest.raises(InputError, match=rf"(?s){FILE}:\d+.*donates 'x'") as error:
        total(of(1, 2))
    assert error.value.id == "jit.donate"
    with pytest.raises(InputError, match="there is no such parameter"):
        jit(lambda x: x, donate=("y",))


# Open sizes.


def test_one_program_for_many_sizes() -> None:
    @jit(sizes={"x": (Dim("N", 1, 16), None)})
    def mean(x: Tensor) -> Tensor:
        return x.sum(0) / x.exp().sum(0)

    for size in (3, 16, 1, 7):
        array = np.linspace(0, 1, size * 2, dtype=np.float32).reshape(size, 2)
        expected = array.sum(0) / np.exp(array).sum(0)
        np.testing.assert_allclose(mean(Tensor(array)).numpy(), expected, rtol=1e-5)
    assert len(mean.variants) == 1
    with pytest.raises(InputError, match=r"axis 0 is 17(?s:.*)N from 1 to 16"):
        mean(Tensor(np.zeros((17, 2), np.float32)))


@dataclass
class Layer:
    weight: Tensor
    name: str = "layer"


def test_dataclasses_are_trees() -> None:
    doubled = jit(lambda layer, x: (Layer(layer.weight * x, layer.name), x))
    layer, _ = doubled(Layer(of(1, 2), "first"), of(3))
    assert (layer.weight.tolist(), layer.name) == ([3, 6], "first")


def test_arrays_are_arguments() -> None:
    added = jit(lambda a, b: a + b)
    for n in range(3):
        assert added(np.full(2, n, np.float32), of(1, 1)).tolist() == [n + 1, n + 1]
    assert len(added.variants) == 1
