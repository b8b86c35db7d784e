"""What a webgpu bundle carries for its user: the runtime, its types with the model's names, a page.

They are real files of `web/` (in a wheel, `tinyedge/web/`); only the types are adapted to the
model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tinyedge.core.dtype import by_name
from tinyedge.core.errors import InternalError
from tinyedge.core.program.program import Port, Program, State
from tinyedge.export.bundle.manifest import MANIFEST, other_manifest
from tinyedge.export.package.package import Extra

# What tinyedge.js fetches beside it.
MODULES = (
    "loading.js",
    "wasm.js",
    "threads.js",
    "image.js",
    "extras.js",
)
PAGE = ("demo_views.js", "demo_inputs.js", "demo.js")  # in the order in which they use each other
FILES = ("tinyedge.js", *MODULES, "index.html", *PAGE, "demo.css")

# Where the types name what the model takes, gives and keeps.
FILES_MARK = "  // <files>"
BEGIN, END = "// <model>\n", "// </model>\n"

ARRAYS = {
    "bool": "Uint8Array",
    "int8": "Int8Array",
    "int16": "Int16Array",
    "int32": "Int32Array",
    "int64": "BigInt64Array",
    "uint8": "Uint8Array",
    "uint16": "Uint16Array",
    "uint32": "Uint32Array",
    "uint64": "BigUint64Array",
    "float16": "Float16 | Float32Array",
    "float32": "Float32Array",
    "float64": "Float64Array",
}


def runtime_files(program: Program, name: str = "model") -> dict[str, Extra]:
    """Name -> file or content of all that a bundle of `program` carries beside its own files.

    name: of the bundle, which is its name as a package.
    """
    files: dict[str, Extra] = {name: web_file(f"src/{name}") for name in FILES}
    files["tinyedge.d.ts"] = types(program).encode("ascii")
    files["index.js"] = lambda hashes: _index(hashes).encode("ascii")
    files["index.html"] = lambda hashes: _start(hashes).encode("utf-8")
    files["index.d.ts"] = web_file("src/index.d.ts")
    files["package.json"] = lambda hashes: _package(name, hashes[MANIFEST]).encode("ascii")
    return files


def page_files(names: Iterable[str]) -> list[str]:
    """Those of a bundle's own files that a page may fetch: not the fallback's C, which is its
    module's source.
    """
    return [name for name in names if not name.endswith(".c")]


def _start(names: Iterable[str]) -> str:
    """index.html, which asks early only for what each page needs: not for the kernels of the GPU
    where WebAssembly may run the model in their place.
    """
    text = web_file("src/index.html").read_text("utf-8")
    if other_manifest(0) not in names:
        return text
    return re.sub(r'<link rel="preload" href="kernels\.wgsl"[^>]*>\n', "", text)


def _index(names: Iterable[str]) -> str:
    """index.js, which names each file that a page may fetch in the way that bundlers know."""
    lines = (f'  "{name}": new URL("./{name}", import.meta.url),' for name in page_files(names))
    before, after = web_file("src/index.js").read_text("ascii").split(FILES_MARK)
    return before + "\n".join(lines) + after


def _package(name: str, sha256: str) -> str:
    """package.json. The version is another one for each content, by the hash of its manifest."""
    plain = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
    content = {
        "name": plain[:200] or "model",
        "version": f"0.0.0-h{sha256[:12]}",
        "description": "A model compiled by tinyedge, with its runtime for pages",
        "type": "module",
        "sideEffects": False,
        "main": "./index.js",
        "types": "./index.d.ts",
        "exports": {".": {"types": "./index.d.ts", "default": "./index.js"}, "./*": "./*"},
    }
    return json.dumps(content, indent=2) + "\n"


def web_file(name: str) -> Path:
    """A file of `web/`, in a checkout or in an installed package. Raises InternalError."""
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "web", package.parent / "web"):
        if (folder / name).is_file():
            return folder / name
    raise InternalError(
        f"web/{name}",
        "this installation lacks a part of the browser's runtime",
        id="install.web",
        next="install tinyedge again",
    )


def types(program: Program) -> str:
    """`tinyedge.d.ts` with this model's inputs, outputs, states and entries."""
    general = web_file("src/tinyedge.d.ts").read_text("ascii")
    before, rest = general.split(BEGIN)
    after = rest.split(END)[1]
    # With several entries a run takes and gives those of one of them.
    optional = "?" if len(program.entries) > 1 else ""
    pictures = {image["input"] for image in program.options.get("images", ())}
    shown = {port.name: port for port in program.inputs if ascii(port.name)[1:-1] in pictures}
    inputs = _members(program.inputs, optional, [_input(port, shown) for port in program.inputs])
    named = {each["output"] for each in program.options.get("labels", ())}
    kinds = [_output(port) + " & Labeled" * (port.name in named) for port in program.outputs]
    outputs = _members(program.outputs, optional, kinds)
    if shown and "placement" not in (port.name for port in program.outputs):
        outputs += _placement(shown)
    states = _members(program.states, "", [_array(state) for state in program.states])
    groups = {"Inputs": inputs, "Outputs": outputs, "States": states}
    model = "\n".join(f"export interface {name} {{\n{text}}}\n" for name, text in groups.items())
    entries = " | ".join(json.dumps(entry.name) for entry in program.entries)
    symbols = " | ".join(json.dumps(symbol.name) for symbol in program.symbols) or "never"
    names = f"export type EntryName = {entries};\nexport type SymbolName = {symbols};\n"
    return f"{before}{model}\n{names}{after}"


def _input(port: Port, shown: Mapping[str, Port]) -> str:
    """What an input takes. shown: those that are pictures."""
    value = f'InputValue<"{by_name(port.dtype).held.name}">'
    if port.name not in shown:
        return value
    return f"{value} | readonly Picture[]" if len(port.shape) > 3 else f"{value} | Picture"


def _placement(shown: Mapping[str, Port]) -> str:
    members = " ".join(
        f"{json.dumps(name)}: Placement{'[]' if len(port.shape) > 3 else ''};"
        for name, port in shown.items()
    )
    comment = "/** Of the pictures that the run got. A loop over the outputs does not meet it. */"
    return f"  {comment}\n  readonly placement: {{{members}}};\n"


def _output(port: Port) -> str:
    slices = " | ".join(json.dumps(part.name) for part in port.slices)
    return f"Output<{_array(port)}{', ' + slices if slices else ''}>"


def _array(port: Port | State) -> str:
    """The array that callers give and get."""
    return ARRAYS[by_name(port.dtype).held.name]


def _members(ports: Iterable[Port | State], optional: str, kinds: Iterable[str]) -> str:
    """A member for each name; where several entries have ports of one name, what any of them is."""
    named: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for port, kind in zip(ports, kinds, strict=True):
        sizes = ", ".join(size if isinstance(size, str) else _size(size) for size in port.shape)
        # A size is a symbol's name, which may hold anything: as JSON it stays on its comment's
        # line.
        shapes, union = named.setdefault(port.name, ({}, {}))
        shapes[f"{port.dtype} {_comment('[' + sizes + ']')}"] = None
        union[kind] = None
    return "".join(
        f"  /** {' or '.join(shapes)} */\n  {json.dumps(name)}{optional}: {' | '.join(union)};\n"
        for name, (shapes, union) in named.items()
    )


def _size(expression: object) -> str:
    if isinstance(expression, tuple):
        operator, *operands = expression
        return f"{operator}({', '.join(map(_size, operands))})"
    return str(expression)


def _comment(text: str) -> str:
    return json.dumps(text)[1:-1].replace("*/", "* /")
