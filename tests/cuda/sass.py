"""What NVIDIA's disassembler says of compiled kernels: their instructions, registers and memory."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

# With so many registers at most, 512 threads share a multiprocessor.
REGISTERS = 128

# Sines and cosines of large arguments (beyond 105615) keep a table in memory: those of doubles, and
# of floats by NVRTC 12.
TRIGONOMETRIC = re.compile(r"te_(sin|cos)\(")
TABLE_BYTES = 48

INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", re.M)
USAGE = re.compile(r"Function (\w+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


@dataclass(frozen=True)
class Code:
    """One kernel's machine code."""

    registers: int
    stack: int  # stack, shared, local: bytes
    shared: int
    local: int
    opcodes: Counter[str]  # how often each occurs

    def count(self, name: str, bits: int = 0) -> int:
        """Instructions of a name, such as LDG; bits: only those of 64 or 128, or 32 and less."""
        return sum(
            count
            for opcode, count in self.opcodes.items()
            if opcode.split(".")[0] == name and (not bits or _bits(opcode) == bits)
        )


def _bits(opcode: str) -> int:
    return next((width for width in (128, 64) if str(width) in opcode.split(".")), 32)


def disassemble(cubin: bytes, folder: Path) -> dict[str, Code]:
    """The kernels of a compiled file by name."""
    file = folder / "kernels.cubin"
    file.write_bytes(cubin)
    usage = {
        name: tuple(map(int, numbers))
        for name, *numbers in USAGE.findall(_tool("cuobjdump", "--dump-resource-usage", file))
    }
    found = {}
    for part in re.split(r"^\s*\.section\s+\.text\.", _tool("nvdisasm", file), flags=re.M)[1:]:
        name = re.match(r"\w+", part)
        assert name is not None
        code = re.split(r"^\s*\.section\s", part, maxsplit=1, flags=re.M)[0]
        found[name[0]] = Code(*usage[name[0]], Counter(INSTRUCTION.findall(code)))
    assert found.keys() == usage.keys()
    return found


def spilled(code: Code, source: str) -> bool:
    """Whether a thread keeps in memory what registers do not hold. source: the kernel's text."""
    table = TABLE_BYTES if TRIGONOMETRIC.search(source) else 0
    moved = code.count("STL") or code.count("LDL")
    return code.stack + code.local > table or bool(moved and not code.stack)


def _tool(name: str, *arguments: str | Path) -> str:
    """The output of a program of NVIDIA's packages; they warn of files of older versions."""
    package = importlib.util.find_spec("nvidia")
    folders = list(package.submodule_search_locations or ()) if package is not None else []
    programs = [file for folder in folders for file in Path(folder).glob(f"*/bin/{name}*")]
    assert programs, f"{name} is missing: pip install '.[test]'"
    command = [str(programs[0]), *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
