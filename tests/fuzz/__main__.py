"""Long runs: `python -m tests.fuzz --count 2000 --seed 1 --target webgpu`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.cuda import device as cuda
from tests.cuda.shim import Shim
from tests.fuzz.recipes import generate
from tests.fuzz.runner import failures
from tests.fuzz.structures import members
from tinyedge.core.compiler.options import Options
from tinyedge.core.program.device import Device, device_module
from tinyedge.model import TARGETS


def opened(target: str) -> Device:
    """A device of a target; for cuda without a GPU, the processor."""
    if target == "cuda":
        return cuda.open(Shim(Path(tempfile.mkdtemp(prefix="tinyedge-fuzz-"))))
    device: Device = device_module(target).open()
    return device


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="graphs to try (default: 500)")
    parser.add_argument("--seed", type=int, default=1000, help="the first graph's seed")
    parser.add_argument("--target", default="cpu", choices=TARGETS)
    parser.add_argument("--plain", action="store_true", help="without optimization only")
    parser.add_argument(
        "--structures",
        action="store_true",
        help="layers of a few structures in random sizes: their kernels may become one",
    )
    parser.add_argument("--together", type=int, default=10, help="graphs in one program")
    parser.add_argument("--stop", type=int, default=10, help="stop after so many failures")
    options = parser.parse_args()
    device = opened(options.target)
    wrong = 0
    for first in range(options.seed, options.seed + options.count, options.together):
        last = min(first + options.together, options.seed + options.count)
        if options.structures:
            recipes = members(first, options.together)
        else:
            recipes = {f"g{seed}": generate(seed) for seed in range(first, last)}
        for optimize in (False,) if options.plain else (False, True):
            chosen = Options(optimize=optimize)
            for report in failures(recipes, options.target, device, chosen):
                wrong += 1
                print(report, flush=True)
        print(f"{last - options.seed} graphs, {wrong} failures", file=sys.stderr, flush=True)
        if wrong >= options.stop:
            break
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
