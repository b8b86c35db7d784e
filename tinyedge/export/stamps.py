"""What the system says of a file, by which a change is seen."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Union

# What an export read, by its path: the identity, size and time of a file that is mapped all the
# while; nothing of others.
Stamp = tuple[int, ...]
Files = Mapping[Path, Union[Stamp, None]]


def stamp(status: os.stat_result) -> Stamp:
    """What changes when a file does."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
