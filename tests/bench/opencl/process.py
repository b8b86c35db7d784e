"""A side of the comparison in a process of its own, and the OpenCL drivers it may be given."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from tests.bench.cases import CACHE, Array
from tests.bench.opencl import peer
from tests.bench.worker import SideError, Worker

ROOT = Path(__file__).resolve().parents[3]
VENDORS = Path("/etc/OpenCL/vendors")


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


class Child(Worker):
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
        more = {"PYTHONPATH": os.pathsep.join([str(peer.FOLDER), str(ROOT)])}
        more |= peer.environment("CL")
        command = [sys.executable, "-W", "ignore", "-m", "tests.bench.opencl.child"]
        super().__init__(command, {**more, **environment})
        try:
            answer = self.ask((runner, path, dict(arrays)))
        except SideError:
            self.close()
            raise
        self.first: float = answer["cpu"]
        self.outputs: dict[str, Array] = answer["outputs"]
