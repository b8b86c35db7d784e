"""Compile the cases of a file with the tinyedge of the current folder: `worker.py CASES RESULTS`.

This file runs beside the code of other commits: it takes nothing but the standard library and
`tinyedge.export_onnx`. What it keeps of a bundle is what compiling decides: the manifest, the
kernels, the C plan, and the hashes of all that is listed. Runtimes and pages are copies.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

PLAN = ("model.c", "model.h")


def read(bundle: Path) -> dict[str, Any]:
    """What is compared of a bundle: {"manifest": .., "texts": {file name: text}}."""
    files = sorted(file for file in bundle.iterdir() if file.is_file())
    texts = {
        file.name: file.read_text(encoding="utf-8")
        for file in files
        if file.name in PLAN or (file.name.startswith("kernels.") and file.suffix != ".cubin")
    }
    return {"manifest": json.loads((bundle / "manifest.json").read_text("utf-8")), "texts": texts}


def compile_case(case: dict[str, Any], export: Any) -> dict[str, Any]:
    """A case's bundle, or the class and text of the error that its export raises."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "replay.tinyedge"
        try:
            export(
                case["model"],
                target=case["target"],
                out=out,
                warn=lambda text: None,
                **case["options"],
            )
        except Exception as error:
            where = traceback.format_exc(limit=-3)
            return {"error": type(error).__name__, "text": str(error), "where": where}
        return read(out)


def main(cases: str, results: str) -> None:
    import tinyedge

    here = Path(os.getcwd()).resolve()
    found = Path(tinyedge.__file__).resolve()
    if here not in found.parents:
        raise SystemExit(f"process replay: {found} was imported, not the tinyedge of {here}")
    listed = json.loads(Path(cases).read_text("utf-8"))
    made = {name: compile_case(case, tinyedge.export_onnx) for name, case in listed.items()}
    Path(results).write_text(json.dumps(made), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
