"""A side of the comparison in a process of its own, and the OpenCL drivers it may be given."""

from __future__ import annotations

import os
import pickle
import selectors
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.cases import CACHE, Array
from tests.bench.opencl import peer

ROOT = Path(__file__).resolve().parents[3]
VENDORS = Path("/etc/OpenCL/vendors")
PATIENCE = 900.0  # seconds until a side must have answered


class SideError(Exception):
    """A side that gives no answer, with what it said."""


def driver(name: str) -> dict[str, str]:
    """The environment in which "pocl" or "intel" is the only driver. Raises SideError."""
    if name == "pocl":
        files = sorted(VENDORS.glob("pocl*.icd"))
        library = files[0].read_text(encoding="utf-8").strip() if files else ""
        missing = "PoCL is not installed: apt-get install pocl-opencl-icd"
    else:
        folder = Path(sysconfig.get_path("data")) / "lib"
        found = folder / "libintelocl.so"
        library = str(found) if found.exists() else ""
        missing = "the Intel CPU runtime is not installed: pip install '.[test]'"
    if not library:
        raise SideError(missing)
    vendors = CACHE / f"vendors-{name}"
    vendors.mkdir(parents=True, exist_ok=True)
    (vendors / f"{name}.icd").write_text(library + "\n", encoding="utf-8")
    environment = {"OCL_ICD_VENDORS": str(vendors)}
    if name == "intel":
        before = os.environ.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(folder), before]))
    return environment


def caches(folder: Path) -> dict[str, str]:
    """The environment in which compiled kernels are kept in `folder` and nowhere else."""
    return {"XDG_CACHE_HOME": str(folder), "POCL_CACHE_DIR": str(folder / "pocl")}


class Child:
    """A model or a bundle with its inputs. `first`: CPU seconds to the first outputs.

    runner: of child.RUNNERS. Raises SideError.
    """

    def __init__(
        self,
        runner: str,
        path: Path,
        arrays: Mapping[str, Array],
        environment: Mapping[str, str],
    ) -> None:
        self._said = tempfile.TemporaryFile()
        more = {"PYTHONPATH": os.pathsep.join([str(peer.FOLDER), str(ROOT)])}
        # tinygrad: its OpenCL backend, compiling in this process, so that its seconds are counted.
        more |= {"DEV": "CL", "PARALLEL": "0"}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.bench.opencl.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**os.environ, **more, **environment},
        )
        try:
            answer = self.ask((runner, path, dict(arrays)))
        except SideError:
            self.close()
            raise
        self.first: float = answer["cpu"]
        self.outputs: dict[str, Array] = answer["outputs"]

    def ask(self, request: object) -> Any:
        """Raises SideError."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            pickle.dump(request, self._process.stdin)
            self._process.stdin.flush()
            self._wait()
            answer = pickle.load(self._process.stdout)
        except (BrokenPipeError, EOFError):
            status = self._process.wait()
            self._said.seek(0)
            said = self._said.read().decode(errors="replace").strip()[-200:]
            raise SideError(f"the process ended with {status}: {said}") from None
        if "error" in answer:
            raise SideError(answer["error"])
        return answer

    def _wait(self) -> None:
        with selectors.DefaultSelector() as selector:
            assert self._process.stdout is not None
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(PATIENCE):
                self._process.kill()
                raise SideError(f"nothing after {PATIENCE:.0f} s")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._said.close()
