"""What is counted of an Adreno's machine code is right, of code written for these tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import tinyedge
from tests.bench.adreno import counts, launches, listing, mesa, report
from tests.bench.adreno.launches import Kernel

# Two loops: 5 times (0, 2, ... 8), in it 3 times, whose counter is a lane of a vector.
FORM = """
NIR (final form) for CL shader k:
con loop {
    con block b1:  // preds: b0 b6
    con 32     %10 = phi b0: %1 (0x0), b6: %30
    con 32x4   %11 = phi b0: %2 (0.000000, 0.000000, 0.000000, 0.000000), b6: %40
    con loop {
        con block b2:
        con 32     %20 = phi b1: %1 (0x0), b5: %22
        con 32x2   %21 = iadd!.nsw %20.xx, %3 (0x8, 0x1)
        con 32     %22 = mov %21.y
        con 1      %23 = ige! %21.y, %4 (0x3)
        if %23 {
            con block b3:
            break
        } else {
            con block b4:
        }
    }
    con 32     %30 = iadd! %10, %5 (0x2)
    con 1      %31 = ilt! %30, %6 (0x9)
    if %31 {
        con block b7:
    } else {
        con block b8:
        break
    }
}
"""
CODE = """
Native code for unnamed CL shader k with sha1 0:
; num_ubos: 0
@in(r0.x) in0 (wrmask=0x7)
mov.f32f32 r0.w, c0.x
shps #l5
getone #l5
stc.u32 c[0], r0.w, 2
(sy)(ss)shpe
l5:
(jp)(nop2) add.u r1.x, r0.x, r0.w
l8:
isaml (f32)(xyzw)r2.x, r1.x, r1.z, s#0, t#0
swz.u32u32 r2.z, r3.x, r3.x, r2.z
l10:
(sy)(rpt3)mad.f32 r4.x, r2.y, (r)r6.x, (r)r4.x
(rpt1)nop
br p0.x, #l10
ldg.u32 r7.x, g[r8.x], 1
br !p0.x, #l8
cov.f32f16 hr0.x, r4.x
stib.b.typed.2d.f32.4.imm.base0 r4.x, r1.x, 32
end
nop
nop
; CL: outputs:
; CL prog 1/1: 19 instr, 4 nops, 15 non-nops, 3 mov, 1 cov, 40 dwords
; CL prog 1/1: 0 last-baryf, 0 last-helper, 0 half, 24 full, 8 constlen
; CL prog 1/1: 0 sstall, 2 (ss), 30 systall, 2 (sy), 2 loops
; 4 preamble instr, 0 early-preamble
"""


def _printed(text: str) -> str:
    return "\n".join(f"MESA: info: {line}" for line in text.splitlines())


def test_a_listing() -> None:
    """Loops multiply; repeats, waits after an instruction and moves of two values count; what runs
    once for all threads does not.
    """
    found = listing.read(_printed(FORM + CODE))
    assert found.counted
    assert found.static == Counter(
        instructions=19, nops=4, texture=1, buffer=1, products=4, moves=3, conversions=1
    )
    inner, outer = 4 + 2 + 1, 1 + 2 + 1 + 1
    assert found.of["instructions"] == (1 + 3 + 3) + 5 * (3 * inner + outer)
    assert found.of["nops"] == 2 + 5 * 3 * 2
    assert found.of["products"] == 5 * 3 * 4
    assert found.of["texture"] == found.of["buffer"] == 5
    assert found.of["moves"] == 1 + 5 * 2
    assert (found.full, found.waves, found.waits) == (24, 8, 30)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("iadd! %10, %5 (0x2)", "iadd! %10, %5 (0x4)", [3, 3]),  # 0, 4, 8
        ("ilt! %30, %6 (0x9)", "ilt! %30, %50", [None, 3]),  # up to a size that is no constant
        ("ilt! %30", "ige! %30", [None, 3]),  # leaves at once: no count
        ("%21.y, %4", "%20, %4", [5, 3]),  # the counter before its step is compared
        ("%21.y, %4", "%21.x, %4", [5, None]),  # compared is not the counter
    ],
)
def test_iterations(before: str, after: str, expected: list[int | None]) -> None:
    assert before in FORM
    lines = [line.strip() for line in FORM.replace(before, after).splitlines()]
    assert listing.iterations(lines) == expected


def test_loops_that_are_not_counted() -> None:
    """Their bodies count once, which is said."""
    found = listing.read(FORM.replace("ilt! %30, %6 (0x9)", "ilt! %30, %50") + CODE)
    assert not found.counted
    assert found.of == found.static


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FORM, "no kernel was printed"),
        (
            FORM + CODE.replace("19 instr", "20 instr"),
            "19 instructions were read where Mesa says 20",
        ),
        (FORM + CODE.replace("end\n", "end\n?\n"), "no instruction"),
    ],
)
def test_what_is_not_understood(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        listing.read(text)


def test_the_last_variant_counts() -> None:
    """The compiler prints a variant for launches at an offset first."""
    first = (FORM + CODE).replace("24 full", "48 full")
    assert listing.read(first + FORM + CODE).full == 24


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two equal products and another one."""
    w = tinyedge.Tensor(np.eye(8, dtype=np.float32))
    return tinyedge.export_function(
        lambda x: {"y": ((x @ w).relu() @ w).relu() @ w},
        {"x": np.zeros((64, 8), np.float32)},
        target="qcom",
        out=tmp_path_factory.mktemp("adreno") / "f.tinyedge",
    )


def test_sums_over_launches(bundle: Path) -> None:
    """A kernel is compiled once, and counts for all threads of all of its launches."""
    seen = launches.of_bundle(bundle)
    compiled: list[Kernel] = []

    def compile(kernels: Sequence[Kernel]) -> list[listing.Listing]:
        compiled.extend(kernels)
        one = Counter(instructions=10, texture=3)
        return [listing.Listing(one, one, 24, 5, True) for _ in kernels]

    side = counts.measure("ours", seen, compile)
    assert side.launches == len(seen) == 3
    assert len(compiled) == len(set(compiled)) == len({launch.kernel for launch in seen})
    threads = sum(launch.threads for launch in seen)
    assert side.totals["instructions"] == 10 * threads and side.totals["texture"] == 3 * threads
    assert side.totals["static texture"] == 9
    for kernel in compiled:
        assert kernel.source.count("__kernel") == 1 and f"void {kernel.name}(" in kernel.source
    _, headings, rows = report.models([("f", [side, side])])
    assert dict(zip(headings, rows[1], strict=True))["launches"] == "3"
    _, headings, rows = report.kernels(side, top=1)
    assert dict(zip(headings, rows[0], strict=True))["a thread: instructions"] == "10"


def test_another_targets_bundle(tmp_path: Path) -> None:
    other = tinyedge.export_function(
        lambda x: {"y": x + 1}, {"x": np.zeros(4, np.float32)}, target="cpu", out=tmp_path / "f"
    )
    with pytest.raises(ValueError, match="is for cpu"):
        launches.of_bundle(other)


@pytest.mark.skipif(mesa.version() is None, reason=mesa.MISSING)
def test_the_compiler(bundle: Path) -> None:
    """Real machine code agrees with the compiler's own counts, and every loop is counted."""
    side = counts.measure("ours", launches.of_bundle(bundle), mesa.compile_all)
    assert side.uncounted == 0
    assert side.totals["products"] >= 3 * 64 * 8 * 8
    assert side.totals["texture"] > 0 and side.totals["spill"] == 0
