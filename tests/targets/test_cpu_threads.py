"""Which launches and copies of the cpu wait for which, and into how many parts they are divided."""

from __future__ import annotations

import ctypes
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from tinyedge.choices import choose_options, find_target
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.source import trace
from tinyedge.targets.cpu import compiler as compilers
from tinyedge.targets.cpu import device as cpu
from tinyedge.targets.cpu import threads as pools

LARGE, SMALL = 1_000_000, 1000


@dataclass(frozen=True)
class Step:
    """A command of a test: what it reads and writes as [start, end), and how much it does."""

    reads: tuple[tuple[int, int], ...]
    writes: tuple[tuple[int, int], ...]
    work: int = LARGE
    groups: int = 1000
    most: int = 1000

    def waits_for(self, other: Step) -> bool:
        pairs = [(a, b) for a in self.writes for b in (*other.reads, *other.writes)]
        pairs += [(a, b) for a in self.reads for b in other.writes]
        return any(a[0] < b[1] and b[0] < a[1] for a, b in pairs)


def buffer(number: int) -> tuple[int, int]:
    return 64 * number + 64, 64 * number + 128


def step(reads: Sequence[int], write: int, **fields: int) -> Step:
    """By numbers of buffers."""
    return Step(tuple(map(buffer, reads)), (buffer(write),), **fields)


def functions() -> pools.Functions:
    return pools.functions(compilers.find(), cached=True)


def flops_of(one: Step) -> int:
    """The operations with which a step's work is as it says: a byte is worth four of them."""
    return 4 * (one.work - sum(end - start for start, end in (*one.reads, *one.writes)))


def recorded(steps: Sequence[Step]) -> pools.Recording:
    kept = []
    commands = []
    for one in steps:
        spans = [*((s, False) for s in one.reads), *((s, True) for s in one.writes)]
        touched = (pools.KernelBuffer * len(spans))(
            *(pools.KernelBuffer(end - start, written) for (start, end), written in spans)
        )
        kernel = pools.Kernel(b"none", None, touched, len(spans))
        places = (ctypes.c_void_p * len(spans))(*(start for (start, _), _ in spans))
        kept.append((touched, kernel, places))
        commands.append(
            pools.Command(
                ctypes.pointer(kernel),
                ctypes.cast(places, ctypes.POINTER(ctypes.c_void_p)),
                None,
                one.groups,
                one.most,
                flops_of(one),
            )
        )
    return pools.Recording(functions(), commands, kept)


def tasks(recording: pools.Recording) -> list[tuple[range, int]]:
    """The commands of each task, and how many tasks must be done before it begins."""
    found = [recording.tasks[number] for number in range(recording.count)]
    return [(range(task.first, task.end), task.after) for task in found]


def parts(one: Step, threads: int) -> int:
    recording = recorded([one])
    functions().divide(recording.commands, recording.tasks, recording.count, threads)
    return int(recording.tasks[0].parts)


def test_a_chain_waits_link_by_link() -> None:
    chain = [step([number], number + 1) for number in range(5)]
    assert tasks(recorded(chain)) == [(range(n, n + 1), n) for n in range(5)]


def test_branches_do_not_wait_for_each_other() -> None:
    """Two chains of two, one behind the other, and what joins them."""
    steps = [step([0], 1), step([1], 2), step([0], 3), step([3], 4), step([2, 4], 5)]
    assert [after for _, after in tasks(recorded(steps))] == [0, 1, 0, 3, 4]


def test_what_is_read_may_not_be_overwritten() -> None:
    reader_then_writer = [step([1], 2), step([3], 1)]
    two_writers = [step([1], 2), step([3], 2)]
    two_readers = [step([1], 2), step([1], 3)]
    assert [tasks(recorded(s))[1][1] for s in (reader_then_writer, two_writers, two_readers)] == [
        *(1, 1, 0)
    ]


def test_parts_of_a_buffer_count() -> None:
    left, right = Step((), ((64, 96),)), Step((), ((96, 128),))
    across = Step((), ((95, 97),))
    assert tasks(recorded([left, right]))[1][1] == 0
    assert tasks(recorded([left, right, across]))[2][1] == 2


def test_small_launches_that_wait_for_each_other_are_one_task() -> None:
    chain = [step([number], number + 1, work=SMALL) for number in range(1000)]
    assert tasks(recorded(chain)) == [(range(1000), 0)]


def test_small_launches_between_large_ones() -> None:
    steps = [step([0], 1), *(step([n], n + 1, work=SMALL) for n in range(1, 6)), step([6], 7)]
    assert tasks(recorded(steps)) == [(range(1), 0), (range(1, 6), 1), (range(6, 7), 2)]


def test_small_independent_launches_share_a_task_up_to_a_little_work() -> None:
    """13 of 5000 are less than 65536 together. What is 64 and more before is not looked at."""
    steps = [step([0], number + 1, work=5000) for number in range(80)]
    found = tasks(recorded(steps))
    assert [len(commands) for commands, _ in found] == [13] * 6 + [2]
    assert [after for _, after in found] == [0, 0, 0, 0, 0, 1, 2]


@pytest.mark.parametrize("seed", range(30))
def test_random_commands_wait_for_all_that_they_must(seed: int) -> None:
    generator = random.Random(seed)

    def spans() -> tuple[tuple[int, int], ...]:
        starts = [64 + generator.randrange(4000) for _ in range(generator.randrange(1, 3))]
        return tuple((start, start + generator.randrange(80)) for start in starts)

    steps = [Step(spans(), spans(), generator.choice([LARGE, SMALL, 40_000])) for _ in range(200)]
    found = tasks(recorded(steps))
    assert [n for commands, _ in found for n in commands] == list(range(200))
    for number, (commands, after) in enumerate(found):
        assert after <= number
        must = max(
            (
                earlier + 1
                for earlier, (others, _) in enumerate(found[:number])
                if any(steps[n].waits_for(steps[other]) for n in commands for other in others)
            ),
            default=0,
        )
        near = sum(others.stop <= commands.start - 64 for others, _ in found[:number])
        assert must <= after <= max(must, near + 1), "beyond what it must: only what is far away"


@pytest.mark.parametrize(
    ("fields", "threads", "expected"),
    [
        ({}, 1, 4),
        ({}, 2, 8),
        ({}, 8, 30),  # a part has at least 32768 of the work
        ({"work": SMALL}, 8, 1),
        ({"work": 65536}, 8, 2),
        ({"work": 65535}, 8, 1),
        ({"groups": 3, "most": 3}, 8, 3),
        ({"groups": 1, "most": 1}, 8, 1),
        ({"groups": 0}, 8, 1),
        ({"groups": 100}, 8, 3),  # a tenth of the sizes that the work is for
        ({"groups": 50}, 8, 1),
        ({"most": 0}, 8, 1),
    ],
)
def test_parts(fields: dict[str, int], threads: int, expected: int) -> None:
    assert parts(step([0], 1, **fields), threads) == expected


@pytest.mark.parametrize(
    ("read", "written", "flops", "expected"),
    [
        (0, 0, 4 * 65536, 2),  # a product of small matrices
        (0, 65536, 0, 2),
        (48 * 1024, 4, 16 * 1024, 1),  # a sum of 12 * 1024 numbers
        (64 * 1024, 4, 16 * 1024, 2),  # of 16 * 1024
        (2**30, 256, 64, 1),  # 64 rows of a large table
    ],
)
def test_work(read: int, written: int, flops: int, expected: int) -> None:
    touched = (pools.KernelBuffer * 2)((written, True), (read, False))
    kernel = pools.Kernel(b"none", None, touched, 2)
    places = (ctypes.c_void_p * 2)(2**20, 2**40)
    command = pools.Command(ctypes.pointer(kernel), places, None, 1000, 1000, flops)
    recording = pools.Recording(functions(), [command], (touched, kernel, places))
    functions().divide(recording.commands, recording.tasks, recording.count, 2)
    assert recording.tasks[0].parts == expected


def test_a_network_waits_only_where_it_must() -> None:
    """Four products of one input do not wait for each other, what reads all waits for all."""
    generator = np.random.default_rng(0)
    shapes = ((64, 64), (64, 48), (64, 32), (64, 16))  # products of one shape are one kernel
    weights = [generator.standard_normal(shape).astype(np.float32) for shape in shapes]

    def network(x: Tensor) -> dict[str, Tensor]:
        parts = [(x @ Tensor.weight("w", w)).relu().in_memory() for w in weights]
        outputs = {f"part{number}": part for number, part in enumerate(parts)}
        return {**outputs, "all": Tensor.concat(parts, 1).in_memory() @ Tensor.weight("v", last)}

    last = generator.standard_normal((160, 64)).astype(np.float32)
    x = generator.standard_normal((256, 64)).astype(np.float32)
    compiled = compile_graph(trace(network, {"x": x}), find_target("cpu"), choose_options("cpu"))
    program = compiled.program
    assert program is not None
    recordings: list[pools.Recording] = []

    class Recorded(pools.Recording):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            recordings.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pools, "Recording", Recorded)
        patch.setattr(os, "cpu_count", lambda: 2)
        with Replay(program, cpu.open(threads=2)) as replay:
            replay.run({"x": x})
    (recording,) = recordings
    counts = [after for _, after in tasks(recording)]
    assert counts[:4] == [0, 0, 0, 0] and len(counts) > 4 and min(counts[4:]) >= 4


@pytest.mark.parametrize(("target", "read"), [("cpu", "read"), ("webgpu", "read_write")])
def test_a_binding_says_whether_its_kernel_writes(target: str, read: str) -> None:
    """But WebGPU binds nothing of one buffer for reading and for writing at the same time."""
    x = np.ones((64, 64), np.float32)
    chosen = find_target(target), choose_options(target)
    program = compile_graph(trace(lambda x: (x + x).relu(), {"x": x}), *chosen).program
    assert program is not None
    assert [binding.access for binding in program.kernels[0].bindings] == ["read_write", read]
