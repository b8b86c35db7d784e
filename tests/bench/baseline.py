"""An older tinyedge to measure beside this one: the files of a commit, taken out of git once."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.bench import cases
from tests.process_replay.sides import ReplayError, commit_of, git

# the last before tiles that fill the registers, filters in panels and Winograd's method
COMMIT = "7fc6d63"


def checkout(commit: str) -> Path:
    """A folder with the commit's files. Raises RuntimeError."""
    found = commit_of(commit)
    if found is None:
        raise RuntimeError(
            f"this clone has no commit {commit}; a shallow one has few: git fetch --unshallow"
        )
    place = cases.CACHE / f"baseline-{found[:12]}"
    if not place.is_dir():
        cases.CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cases.CACHE) as folder:
            archive, files = Path(folder) / "files.tar", Path(folder) / "files"
            try:
                git("archive", "--format=tar", f"--output={archive}", found)
            except ReplayError as error:
                raise RuntimeError(str(error)) from error
            shutil.unpack_archive(archive, files)
            files.rename(place)
    return place
