"""A folder put in the place of another at one moment, whole and on the disk.

The new folder is written beside its place under a hidden name, then the two change names in one
call of the system, so that at each moment the place holds the old folder or the new one. Where the
system has no such call there are two, and between them the old folder has a hidden name, from
which the next export brings it back.

A folder that is being written, and one that is being replaced, is locked (flock) by its process,
so that several can write to one place, and what a killed one left is known and removed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PARTIAL = ".partial"  # of what is not at its place yet, or not any more
OLD = "-old"

# Where nothing can be locked, so old is what a killed process left.
STALE_SECONDS = 24 * 3600

# Files that are written to the disk at the same time, as the wait for it is one for all of them.
SYNCS = 8

# How often others may be the first to change a place before that is an error.
TRIES = 1000

AT_FDCWD = -100
RENAME_EXCHANGE = 2  # of Linux' renameat2
RENAME_SWAP = 2  # of macOS' renamex_np

# What the exchange answers where the system or the file system lacks it.
LACKING = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)


@contextmanager
def new_folder(place: Path) -> Iterator[Path]:
    """A new, locked folder beside `place`, gone at the end unless `put` moved it."""
    while True:
        folder = place.with_name(f"{_prefix(place)}{secrets.token_hex(4)}{PARTIAL}")
        folder.mkdir()
        with ExitStack() as stack:
            try:
                stack.enter_context(_locked(folder))
                folder.stat()
            except FileNotFoundError:
                continue  # another export took it for what a killed one left, before the lock
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            yield folder
            return


def put(folder: Path, place: Path, check: Callable[[Path], None]) -> None:
    """Put a folder of `new_folder` at its place, all of its files on the disk before.

    check(found): raise unless what was found, which has another name then, may be deleted. What it
    refuses is left, or put back. Raises OSError.
    """
    sync(folder)
    for _ in range(TRIES):
        with suppress(FileNotFoundError):  # of the place: another export moved it, or removed it
            if os.path.lexists(place):
                if _replace(folder, place, check):
                    break
            elif _first(folder, place):
                break
        if not folder.exists():
            raise FileNotFoundError(errno.ENOENT, "what was written was removed", str(folder))
    else:
        raise OSError(errno.EBUSY, "other programs replace it all the time", str(place))
    _sync_folder(place.parent)


def _first(folder: Path, place: Path) -> bool:
    """Move a folder to where nothing is; False if something is there by now."""
    try:
        folder.rename(place)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR):
            return False
        raise
    return True


def _replace(folder: Path, place: Path, check: Callable[[Path], None]) -> bool:
    """Replace what is at a place; False if another process was faster."""
    with _locked(place) as lock:
        if lock is not None and not _is(place, lock):
            return False
        check(place)
        if not exchange(folder, place):
            return _replace_in_two(folder, place)
        try:
            if lock is None or _is(folder, lock):
                check(folder)
        except BaseException:
            exchange(folder, place)
            raise
        shutil.rmtree(folder, ignore_errors=True)
        return True


def _replace_in_two(folder: Path, place: Path) -> bool:
    old = folder.with_name(folder.name.removesuffix(PARTIAL) + OLD + PARTIAL)
    place.rename(old)
    try:
        folder.rename(place)
    except BaseException as error:
        if not os.path.lexists(place):
            old.rename(place)
        if isinstance(error, OSError) and os.path.lexists(place):
            shutil.rmtree(old, ignore_errors=True)  # another export's is at the place
            return False
        raise
    shutil.rmtree(old, ignore_errors=True)
    return True


def remove_left(place: Path) -> None:
    """Remove what killed exports to a place left; bring back an old folder that lacks its place."""
    name = re.compile(re.escape(_prefix(place)) + rf"[0-9a-f]{{8}}({OLD})?{re.escape(PARTIAL)}")
    with suppress(OSError):
        for found in sorted(filter(name.fullmatch, os.listdir(place.parent))):
            left = place.with_name(found)
            with suppress(OSError), _locked(left, wait=False) as lock:
                age = time.time() - left.stat().st_mtime
                if lock is None and age < STALE_SECONDS:
                    continue
                if found.endswith(OLD + PARTIAL) and not os.path.lexists(place):
                    left.rename(place)
                else:
                    shutil.rmtree(left)


def exchange(one: Path, other: Path) -> bool:
    """Let two paths change what they name, in one step. False where the system cannot.

    Raises OSError.
    """
    if not sys.platform.startswith(("linux", "darwin")):
        return False
    library = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    try:
        if sys.platform == "darwin":
            status = library.renamex_np(first, second, ctypes.c_uint(RENAME_SWAP))
        else:
            here = ctypes.c_int(AT_FDCWD)
            flags = ctypes.c_uint(RENAME_EXCHANGE)
            status = library.renameat2(here, first, here, second, flags)
    except AttributeError:  # an old system library
        return False
    if status == 0:
        return True
    number = ctypes.get_errno()
    if number in LACKING:
        return False
    raise OSError(number, os.strerror(number), str(one))


def sync(folder: Path) -> None:
    """Write a folder, its files and folders to the disk, some at a time. Raises OSError."""
    tree = [(Path(root), names) for root, _, names in os.walk(folder)]
    with ThreadPoolExecutor(SYNCS) as pool:
        syncs = [pool.submit(_sync_folder, root) for root, _ in tree]
        syncs += [pool.submit(_sync_file, root / name) for root, names in tree for name in names]
    for sync in syncs:
        sync.result()


def _sync_file(file: Path) -> None:
    descriptor = os.open(file, os.O_RDWR | getattr(os, "O_BINARY", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, where the system can."""
    if os.name == "posix":
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


@contextmanager
def _locked(folder: Path, *, wait: bool = True) -> Iterator[int | None]:
    """Hold a folder's lock, and give its descriptor; None where folders cannot be locked.

    Raises FileNotFoundError, and, unless it waits, BlockingIOError.
    """
    try:
        import fcntl
    except ImportError:
        yield None
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    held: int | None = None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            held = descriptor
        except BlockingIOError:
            raise
        except OSError:  # not every file system has locks
            pass
        yield held
    finally:
        if held is not None:  # closing is not enough: a child forked meanwhile holds it as well
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _is(path: Path, descriptor: int) -> bool:
    """Whether a path names the folder that was opened."""
    return os.path.samestat(path.stat(), os.fstat(descriptor))


def _prefix(place: Path) -> str:
    """What hidden folders beside a place begin with: its name, cut to leave room for more."""
    return f".{os.fsencode(place.name)[:100].decode('utf-8', 'ignore')}-"
