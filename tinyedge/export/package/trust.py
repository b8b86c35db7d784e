"""Which bundles this user made or said yes to: running a bundle may be running its native code."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from tinyedge.core.files import regular_file

_log = logging.getLogger("tinyedge")

# The newest are kept; a line is the SHA-256 of a manifest, which holds those of the other files.
MOST = 10_000


def record_file() -> Path:
    """Where the bundles are recorded: `tinyedge/bundles` in the user's state folder."""
    base = os.environ.get("XDG_STATE_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state"
    return root / "tinyedge" / "bundles"


def record_place() -> str:
    """The record's path, or why there is none, in words."""
    try:
        return repr(str(record_file()))
    except RuntimeError:
        return "the user's state folder, but this user has no home"


def remember(plan: str) -> None:
    """Record the bundle with this hash of its manifest; warn where that is not possible."""
    try:
        _remember(plan, record_file())
    except (OSError, RuntimeError) as error:
        because = getattr(error, "strerror", None) or str(error)
        _log.warning(
            f"bundles that this user made cannot be recorded in {record_place()}: {because}; "
            "verify, run and bench will ask for --trust"
        )


def _remember(plan: str, file: Path) -> None:
    if plan in _recorded(file):
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
    handle = os.open(file, flags, 0o600)
    with open(handle, "w", encoding="ascii") as lines:
        lines.write(f"{plan}\n")  # in one piece, also beside other processes
    if len(kept := _recorded(file)) > MOST:
        new = file.with_name(f"{file.name}.{os.getpid()}")
        new.write_text("".join(f"{line}\n" for line in kept[-MOST // 2 :]), "ascii")
        new.chmod(0o600)
        os.replace(new, file)


def is_known(plan: str) -> bool:
    """Whether the bundle with this hash of its manifest is recorded."""
    try:
        return plan in _recorded(record_file())
    except (OSError, RuntimeError):  # no home
        return False


def _recorded(file: Path) -> list[str]:
    """All that is recorded, the newest last; nothing where others can write to the record."""
    try:
        with regular_file(file) as (opened, _):
            status = os.fstat(opened.fileno())
            text = opened.readall().decode("ascii", "replace")
    except FileNotFoundError:
        return []
    if os.name == "posix" and (status.st_uid != os.getuid() or status.st_mode & 0o022):
        return []
    return re.findall(r"^[0-9a-f]{64}$", text, re.MULTILINE)
