"""Models as machine code of NVIDIA's GPUs, which needs none: `python -m tests.bench.cuda`.

    python -m tests.bench.cuda                        # every model, for sm_87 and sm_90
    python -m tests.bench.cuda bert --arch sm_87 --precision fp32 fp16 --json FILE

Each kernel of a model is compiled by NVRTC and disassembled: its registers, what it spills, and of
its launches' arithmetic how much tiles in shared memory share. It says nothing of time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tinyedge
from tests.bench import cases
from tests.bench.report import MISSING, Table, as_markdown
from tests.cuda.sass import REGISTERS, Code, disassemble, spilled
from tinyedge.core.errors import TinyedgeError
from tinyedge.core.program.program import launches
from tinyedge.export.bundle.reading import read

ARCHITECTURES = ("sm_87", "sm_90")
PRECISIONS = ("fp32", "fp16")
SMALL = 0.01  # of a model's arithmetic: what has less is no large contraction


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.cuda",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cases.add_models(parser)
    parser.add_argument("--arch", nargs="+", default=ARCHITECTURES, metavar="ARCH")
    parser.add_argument(
        "--precision",
        nargs="+",
        choices=PRECISIONS,
        default=PRECISIONS[:1],
        help="of values between kernels; default: fp32",
    )
    parser.add_argument("--json", metavar="FILE", help="write everything counted")
    given = parser.parse_args(arguments)
    chosen = cases.chosen(parser, given.models)
    rows = []
    for name in chosen:
        print(name, file=sys.stderr, flush=True)
        try:
            for precision in given.precision:
                rows += measure(name, given.arch, precision)
        except TinyedgeError as error:
            print(error, file=sys.stderr)
            return 1
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(as_markdown([table(rows)], notes(rows)))
    return 0


def measure(name: str, architectures: Sequence[str], precision: str) -> list[dict[str, Any]]:
    """A model's `facts` for each architecture."""
    case = cases.ALL[name]
    with tempfile.TemporaryDirectory() as scratch:
        bundle = export(case, Path(scratch) / "bundle", architectures, precision)
        program = read(bundle).program
        sources = {kernel.name: kernel.source for kernel in program.kernels}
        work: Counter[str] = Counter()
        for entry in program.entries:
            for launch in launches(entry.steps):
                work[program.kernels[launch.kernel].name] += launch.flops
        about = {"model": name, "size": case.size, "precision": precision}
        return [
            {**about, "arch": architecture(file), **found}
            for file, content in sorted(program.binaries.items())
            if file.endswith(".cubin")
            for found in [facts(disassemble(content, Path(scratch)), sources, work)]
        ]


def export(case: cases.Case, out: Path, architectures: Sequence[str], precision: str) -> Path:
    """A case's bundle without golden outputs. Raises TinyedgeError."""
    return tinyedge.export_onnx(
        case.path,
        target="cuda",
        out=out,
        dims=dict(case.dims),
        arch=architectures,
        precision=precision,
        golden=False,
        warn=lambda text: None,
    )


def architecture(file: str) -> str:
    """Of kernels-00087.cubin sm_87."""
    return f"sm_{int(file.removesuffix('.cubin').rpartition('-')[2])}"


def facts(
    codes: Mapping[str, Code], sources: Mapping[str, str], work: Mapping[str, int]
) -> dict[str, Any]:
    """What is counted of a model's kernels. work: the arithmetic of all of a kernel's launches."""
    most = max(codes, key=lambda name: codes[name].registers)
    total = sum(work.values()) or 1
    wide, loads = (sum(code.count("LDG", bits) for code in codes.values()) for bits in (128, 0))
    shared = sum(work[name] for name, code in codes.items() if code.shared)
    alone = {name: work[name] / total for name, code in codes.items() if not code.shared}
    return {
        "kernels": len(codes),
        "instructions": sum(sum(code.opcodes.values()) for code in codes.values()),
        "registers": codes[most].registers,
        "most": most,
        "beyond": sorted(name for name, code in codes.items() if code.registers > REGISTERS),
        "spilling": sorted(name for name, code in codes.items() if spilled(code, sources[name])),
        "shared": shared / total,
        "alone": {name: part for name, part in alone.items() if part >= SMALL},
        "loads of 16 bytes": wide / (loads or 1),
    }


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    cells = [
        [
            *(f"{row['model']} {row['size']}", row["precision"], row["arch"]),
            *(str(row["kernels"]), str(row["instructions"])),
            *(str(row["registers"]), f"`{row['most']}`"),
            *(", ".join(f"`{name}`" for name in row[what]) or MISSING for what in WORSE),
            *(f"{row[what]:.0%}" for what in ("shared", "loads of 16 bytes")),
        ]
        for row in rows
    ]
    headings = [
        *("model", "precision", "for", "kernels", "instructions, in the text"),
        *("most registers", "of"),
        *(f"above {REGISTERS}", "spills"),
        *("arithmetic in kernels with shared tiles", "loads of 16 bytes, in the text"),
    ]
    return "Machine code of CUDA's kernels", headings, cells


WORSE = ("beyond", "spilling")


def notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What else does much of a model's arithmetic."""
    found = []
    for row in rows:
        alone = sorted(row["alone"].items(), key=lambda each: -each[1])
        if alone:
            listed = ", ".join(f"`{name}` {part:.0%}" for name, part in alone)
            which = f"{row['model']}, {row['precision']}, {row['arch']}"
            found.append(f"without shared memory, {which}: {listed}")
    return found


if __name__ == "__main__":
    sys.exit(main())
