"""Reading files that someone else may have put there, and writing whole ones."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

NOT_REGULAR = "it is no regular file"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def next_place(error: OSError, elsewhere: str = "choose another place") -> str:
    """The next step where something could not be written: space is freed only if none is left."""
    return f"free some space, or {elsewhere}" if error.errno in FULL else elsewhere


@contextmanager
def regular_file(path: Path, *, links: bool = False) -> Iterator[tuple[FileIO, os.stat_result]]:
    """A regular file, open to be read, and what the system says of it.

    links: symbolic links are followed. Raises OSError for anything else; a pipe that nobody writes
    to is not waited for.
    """
    if not links and path.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link", str(path))
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags | (0 if links else getattr(os, "O_NOFOLLOW", 0)))
    with FileIO(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, NOT_REGULAR, str(path))
        yield file, status


def read_regular_file(path: Path, limit: int) -> bytes:
    """A regular file's bytes. Raises OSError, also where there are more than `limit`."""
    with regular_file(path) as (file, status):
        if status.st_size > limit:
            because = f"it has {status.st_size} bytes, more than {limit}"
            raise OSError(errno.EFBIG, because, str(path))
        return file.read(limit)


def write_whole(path: Path, *parts: bytes) -> None:
    """Write a file that is whole or not there: an old one stays until then, and nothing is left
    beside it. Raises OSError.
    """
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(beside, "xb") as file:
            file.writelines(parts)
        os.replace(beside, path)
    except BaseException:
        if beside.is_file():
            beside.unlink()
        raise
