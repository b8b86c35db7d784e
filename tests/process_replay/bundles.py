"""How two bundles differ: kernels, schedule, memory and the rest of the manifest, as texts."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

Result = Mapping[str, Any]  # what `worker.read` gives, or an error
Sections = dict[str, list[str]]  # a heading, and lines that are equal if the meaning is

# Fields of the manifest whose name has changed, old to new. Both sides are read by the new names,
# so that a rename alone is no difference. An entry goes when no commit that is compared has it.
FIELDS: dict[str, str] = {"counts": "grid"}  # of a launch
# The same for words that are values, such as the name of a move.
WORDS: dict[str, str] = {
    "cpu, unoptimi" + "sed, double": "cpu, unoptimized, double",  # how goldens are made
    "cpu, unoptimized, double, kept as hal" + "ves": "cpu, unoptimized, double, kept as fp16",
    "cpu, unoptimi" + "sed, double, kept as hal" + "ves": "cpu, unoptimized, double, kept as fp16",
}

# These name the whole bundle: they differ whenever anything does, and say nothing by themselves.
_DIGEST = re.compile(r"[0-9a-f]{64}|(?<=_)[0-9A-F]{16}\b")
_MEMORY = ("arenas", "buffers", "peak_bytes", "states", "weights")
_SCHEDULE = ("entries", "steps", "symbols")
_ELSEWHERE = ("kernels", "prelude", "files", "tool", *_MEMORY, *_SCHEDULE)


def renamed(value: Any) -> Any:
    """A value of a manifest by the names of today."""
    if isinstance(value, dict):
        return {FIELDS.get(key, key): renamed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [renamed(item) for item in value]
    return WORDS.get(value, value) if isinstance(value, str) else value


def _line(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _nodes(names: Any) -> str:
    return ", ".join(names) or "no node"


def _kernel_nodes(manifest: Result) -> dict[int, list[str]]:
    """By a kernel's number, the ONNX nodes of the steps that launch it."""
    nodes: dict[int, list[str]] = {}
    for step in manifest["steps"]:
        if "kernel" in step:
            known = nodes.setdefault(step["kernel"], [])
            known += [name for name in step.get("nodes", []) if name not in known]
    return nodes


def _source(record: Result, manifest: Result, texts: Mapping[str, str]) -> list[str]:
    """A kernel's lines, or the prelude's, from the file that holds it."""
    text = texts[manifest["files"][record["file"]]["name"]].encode()
    return text[record["offset"] : record["offset"] + record["bytes"]].decode().splitlines()


def _kernels(manifest: Result, texts: Mapping[str, str]) -> Sections:
    """A section for each kernel, by its nodes: a new kernel before it makes it no other one."""
    sections: Sections = {}
    nodes = _kernel_nodes(manifest)
    for number, kernel in enumerate(manifest["kernels"]):
        heading = f"kernel of {_nodes(nodes.get(number, []))}"
        same = sum(known.split(" #")[0] == heading for known in sections)
        facts = {k: v for k, v in kernel.items() if k not in ("file", "offset", "bytes", "moves")}
        moves = [f"// move {_line(move)}" for move in kernel.get("moves", [])]
        lines = [f"// {_line(facts)}", *moves, *_source(kernel, manifest, texts)]
        sections[f"{heading} #{same + 1}" if same else heading] = lines
    return sections


def _step(step: Result, kernels: list[Any]) -> str:
    """One step: its kernel by name instead of by number, its nodes first."""
    fields = {key: value for key, value in step.items() if key not in ("nodes", "kernel")}
    if "kernel" in step:
        fields["kernel"] = kernels[step["kernel"]]["entry"]
    return f"{_nodes(step.get('nodes', []))}: {_line(fields)}"


def _fields(manifest: Result, names: tuple[str, ...]) -> list[str]:
    """A line for each field, for each item of a list."""
    lines = []
    for name in names:
        value = manifest.get(name)
        many = enumerate(value) if isinstance(value, list) else [("", value)]
        lines += [f"{name} {number}: {_line(item)}" for number, item in many]
    return lines


def sections(result: Result) -> Sections:
    """A bundle as headed texts. An error is its class: wording is not compared."""
    if "error" in result:
        return {"refused": [result["error"]]}
    manifest, texts = renamed(result["manifest"]), result["texts"]
    made = _kernels(manifest, texts)
    steps = [_step(step, manifest["kernels"]) for step in manifest["steps"]]
    made["schedule"] = [*_fields(manifest, ("entries", "symbols")), *steps]
    made["memory plan"] = _fields(manifest, _MEMORY)
    rest = tuple(sorted(name for name in manifest if name not in _ELSEWHERE))
    made["manifest"] = _fields(manifest, rest)
    made["files"] = [_line(file) for file in manifest["files"]]
    made["prelude"] = _source(manifest["prelude"], manifest, texts)
    for name in ("model.c", "model.h"):
        made[f"plan in C, {name}"] = _DIGEST.sub("..", texts.get(name, "")).splitlines()
    return made


def differences(case: str, base: Result, head: Result) -> Iterator[str]:
    """Unified diffs of what differs, each headed by the case and the nodes or the part."""
    old, new = sections(base), sections(head)
    for heading in [*old, *(name for name in new if name not in old)]:
        before, after = old.get(heading, []), new.get(heading, [])
        if before != after:
            title = f"{case}: {heading}"
            lines = difflib.unified_diff(
                before, after, f"base  {title}", f"head  {title}", n=2, lineterm=""
            )
            yield "\n".join(lines)
