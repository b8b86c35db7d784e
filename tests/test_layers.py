"""The layers: who may import whom, and what may not be named where."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agreement import find_target
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.tensor.graph import Graph, Port
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.package.package import write_bundle
from tinyedge.model import TARGETS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tinyedge"
FILES = sorted(PACKAGE.rglob("*.py"))

# Room of the package -> rooms that it may import, besides itself and the files of `core` itself. A
# room holds the folders in it, unless they have rows of their own; the root and the command line
# may import all.
ALLOWED = {
    "core": set(),
    "core.ir": set(),
    "core.program": set(),
    "core.tensor": {"core.ir", "core.program"},
    "core.gradient": {"core.ir", "core.tensor"},
    "optim": {"core.gradient", "core.tensor"},
    "nn": {"core.gradient", "core.ir", "core.tensor"},
    "core.compiler": {"core.ir", "core.program", "core.tensor"},
    "eager": {"core.compiler", "core.gradient", "core.ir", "core.program", "core.tensor"},
    "targets": {"core.ir", "core.program", "core.compiler"},
    "export": {"core.ir", "core.tensor", "core.program", "export.bundle", "export.onnx"},
    "export.bundle": {"core.program"},
    "export.onnx": {"core.ir", "core.program", "core.tensor", "export"},
    "export.onnx.operators": {"core.ir", "core.tensor", "core.gradient", "export.onnx"},
    "export.package": {"core.program", "export", "export.bundle"},
    "export.train": {"core.gradient", "core.ir", "core.tensor", "export", "export.onnx", "optim"},
    "export.verify": {
        "core.ir",
        "core.program",
        "core.compiler",
        "export",
        "export.bundle",
        "export.onnx",
        "export.package",
        "serve",
    },
    "serve": set(),
}

# Imports that these rooms still need of others, each with its reason. None may be added.
KNOWN_UPWARD: dict[tuple[str, str], str] = {
    ("tinyedge.export.onnx", "tinyedge.export.onnx.operators"): "importing it registers operators",
}

# Libraries beyond Python's own that each part may import at the top of a file.
LIBRARIES = {
    "core": {"numpy"},
    "optim": set(),
    "eager": {"numpy"},
    "nn": {"numpy"},
    "targets": {"numpy"},
    "export": {"numpy", "onnx", "google"},
    "serve": set(),
    "cli": {"numpy", "click"},
}

# The words of targets, none of which the compiler core may know.
# "cpu" is no such word: what the compiler makes for no device in particular runs there.
TARGET_WORDS = re.compile(
    "|".join(({*TARGETS} - {"cpu"}) | {"wgsl", "wgpu", "opencl", "adreno", "nvrtc", "onnx"}),
    re.IGNORECASE,
)


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, *, top_only: bool = False) -> Iterator[str]:
    """Modules a file imports; top_only: when it is imported itself."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}: relative import"
                assert child.module is not None
                yield child.module
                yield from (f"{child.module}.{alias.name}" for alias in child.names)
            elif top_only and isinstance(child, (ast.FunctionDef, ast.If, ast.Lambda)):
                continue
            else:
                pending.append(child)


def room_of(module: str) -> str | None:
    """The room that a module of the package lies in; None: the root or the command line."""
    names = module.split(".")[1:]
    rooms = (".".join(names[:n]) for n in range(len(names), 0, -1))
    return next((room for room in rooms if room in ALLOWED), None)


def test_imports_go_down() -> None:
    """From a room to those below it."""
    modules = {module_of(path): path for path in FILES}
    upward = {
        (name, needed)
        for name, needs in edges_of(modules).items()
        for needed in needs
        if (room := room_of(name)) and room_of(needed) not in {room, "core", *ALLOWED[room]}
    }
    assert not KNOWN_UPWARD.keys() - upward, "not needed any more: take it out of KNOWN_UPWARD"
    found = sorted(upward - KNOWN_UPWARD.keys())
    assert not found, "\n".join(f"{name} imports {needed}" for name, needed in found)


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_libraries_are_imported_where_they_are_needed(path: Path) -> None:
    """Importing tinyedge stays fast, and works with no device library installed."""
    known = {"tinyedge", *sys.stdlib_module_names, *LIBRARIES.get(part_of(path), {"numpy"})}
    for module in imports(path, top_only=True):
        assert module.split(".")[0] in known, f"imports {module} at the top"


def test_targets_do_not_know_each_other() -> None:
    for path in PACKAGE.joinpath("targets").rglob("*.py"):
        own = path.relative_to(PACKAGE / "targets").parts[0]
        for module in imports(path):
            match = re.match(r"tinyedge\.targets\.(\w+)", module)
            assert match is None or match[1] == own, f"{path} imports {module}"


Edge = tuple[str, str]  # a module, and one that it imports


def edges_of(modules: dict[str, Path]) -> dict[str, set[str]]:
    """What each module imports of them, at its top, in a function or under TYPE_CHECKING."""
    edges: dict[str, set[str]] = {}
    for name, path in modules.items():
        needed = edges[name] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                needed |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                full = {f"{node.module}.{alias.name}" for alias in node.names}
                needed |= {each if each in modules else str(node.module) for each in full}
        needed &= modules.keys() - {name}
    return edges


def cyclic(edges: dict[str, set[str]]) -> list[Edge]:
    """The edges that lie on a cycle: what they lead to leads back."""
    below = {name: set(needs) for name, needs in edges.items()}
    for middle in edges:
        for needs in below.values():
            if middle in needs:
                needs |= below[middle]
    return sorted((a, b) for a, needs in edges.items() for b in needs if a in below[b])


def test_no_module_imports_itself_through_others() -> None:
    cycle = cyclic(edges_of({module_of(path): path for path in FILES}))
    assert not cycle, "imports in a cycle:\n" + "\n".join(f"{a} -> {b}" for a, b in cycle)


def test_a_cycle_is_found_wherever_the_import_stands(tmp_path: Path) -> None:
    texts = {
        "top": "from inside import x",
        "inside": "def f():\n    import typed",
        "typed": "if TYPE_CHECKING:\n    import top",
        "apart": "import top",
    }
    modules = {name: tmp_path / f"{name}.py" for name in texts}
    for name, path in modules.items():
        path.write_text(texts[name], encoding="utf-8")
    cycle = [("inside", "typed"), ("top", "inside"), ("typed", "top")]
    assert cyclic(edges_of(modules)) == cycle


@pytest.mark.parametrize("path", [path for path in FILES if part_of(path) == "core"], ids=module_of)
def test_core_names_no_target(path: Path) -> None:
    """In code: names and strings. Docstrings and comments may say where a fact comes from."""
    source = path.read_text(encoding="utf-8")
    docstrings = {
        node.body[0].lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (tokenize.NAME, tokenize.STRING) or token.start[0] in docstrings:
            continue
        found = TARGET_WORDS.search(token.string)
        assert found is None, f"line {token.start[0]}: {found}"


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_only_the_command_line_reads_the_environment(path: Path) -> None:
    # The exceptions are where the user's caches and records lie.
    folders = ("tinyedge.targets.cpu.compiler", "tinyedge.export.package.trust")
    if part_of(path) == "cli" or module_of(path) in folders:
        return
    source = path.read_text(encoding="utf-8")
    assert not re.search(r"\bos\.environ\b|\bgetenv\b|\bsys\.argv\b", source)


def test_importing_tinyedge_imports_no_device_and_no_onnx() -> None:
    heavy = {"onnx", "wgpu", "flask", "playwright", "rich", "click", "onnxruntime"}
    script = f"import sys, tinyedge; print(sorted({heavy!r} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert result.stdout.strip() == "[]"


def test_loading_a_bundle_imports_no_compiler(tmp_path: Path) -> None:
    """Only what reads a bundle and replays it: a device program starts in half the time."""
    x = Tensor.input("x", (4,), dt.float32)
    graph = Graph((Port("x", dt.float32, (4,)),), (Port("y", dt.float32, (4,), (x + 1.0).node),))
    program = compile_graph(graph, find_target("cpu")).program
    assert program is not None
    bundle = write_bundle(program, tmp_path / "b.tinyedge")
    script = (
        f"import sys, numpy, tinyedge\nwith tinyedge.load({str(bundle)!r}) as model:\n"
        "    assert model.run({'x': numpy.ones(4, 'f4')})['y'].tolist() == [2.0] * 4\n"
        "print(*(name for name in sys.modules if name.startswith('tinyedge.')))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    loaded = set(result.stdout.split())
    assert "tinyedge.core.program.replay" in loaded
    rooms = ("core.ir", "core.tensor", "core.compiler", "export.onnx", "export.package", "api")
    assert not {name for name in loaded if name.startswith(tuple(f"tinyedge.{r}" for r in rooms))}
