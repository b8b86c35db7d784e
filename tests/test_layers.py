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
from tinyedge.core.compile import Graph, Port, compile_graph
from tinyedge.core.tensor import Tensor
from tinyedge.export.package import write_bundle

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tinyedge"
FILES = sorted(PACKAGE.rglob("*.py"))

# Part of the package -> parts that it may import. The root and the command line may import all.
ALLOWED = {
    "core": {"core"},
    "targets": {"core", "targets"},
    "export": {"core", "export", "serve"},
    "serve": {"core"},
}

# Libraries beyond Python's own that each part may import at the top of a file.
LIBRARIES = {
    "core": {"numpy"},
    "targets": {"numpy"},
    "export": {"numpy", "onnx", "google"},
    "serve": set(),
    "cli": {"numpy", "click"},
}

# The words of targets, none of which the compiler core may know.
TARGET_WORDS = re.compile(r"webgpu|wgsl|wgpu|opencl|qcom|adreno|cuda|nvrtc|onnx", re.IGNORECASE)


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


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_go_down(path: Path) -> None:
    part = part_of(path)
    if part not in ALLOWED:
        return
    for module in imports(path):
        head, *rest = module.split(".")
        if head == "tinyedge" and rest:
            assert rest[0] in ALLOWED[part], f"{part} imports {module}"


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


def test_no_module_of_core_imports_itself_through_others() -> None:
    modules = {module_of(path): path for path in FILES if part_of(path) == "core"}
    edges = {
        name: {each for each in imports(path, top_only=True) if each in modules and each != name}
        for name, path in modules.items()
    }
    while edges:
        free = {name for name, needs in edges.items() if not needs}
        assert free, f"a cycle among {sorted(edges)}"
        edges = {name: needs - free for name, needs in edges.items() if name not in free}


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
    folders = ("tinyedge.targets.cpu.compiler", "tinyedge.export.trust")
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
    compilers = {"compile", "target", "uop", "ops", "tensor", "schedule", "optimize", "lower"}
    assert "tinyedge.core.replay" in loaded
    assert not loaded & {f"tinyedge.core.{name}" for name in compilers}
    assert not {
        name for name in loaded if name.startswith(("tinyedge.api", "tinyedge.export.onnx"))
    }
