"""Reading files that someone else may have put there."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path


@contextmanager
def regular_file(path: Path) -> Iterator[tuple[FileIO, int]]:
    """A regular file, open to be read, and its size in bytes.

    Raises OSError for anything else, links too; a pipe that nobody writes to is not waited for.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link", str(path))
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    with FileIO(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        yield file, status.st_size


def read_regular_file(path: Path, limit: int) -> bytes:
    """A regular file's bytes. Raises OSError, also where there are more than `limit`."""
    with regular_file(path) as (file, size):
        if size > limit:
            raise OSError(errno.EFBIG, f"it has {size} bytes, more than {limit}", str(path))
        return file.read(limit)
