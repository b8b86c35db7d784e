"""C source to a loaded shared library: the compiler found, run, and its results kept on disk."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib.util
import logging
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tinyedge.core.errors import DeviceError
from tinyedge.core.files import FULL, read_regular_file

# C and mathematics as written: no contraction, no errno; -w because generated code has no reader
# for warnings.
FLAGS = (
    *("-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared", "-w"),
    "-Werror=implicit-function-declaration",
    "-fvisibility=default",
)
DEFAULT_OPTIMIZATION = ("-O2", "-march=native")
# Of GCC: tuned for AMD's processors, it loads a vector again for each row of a tile, which makes
# products with AVX2 a third slower.
GCC_FLAGS = ("-mtune=generic",)

# The cache is trimmed to this size, oldest use first, whenever something is added.
CACHE_BYTES = 256 * 2**20
# In a folder with less room nothing is compiled.
LEAST_ROOM = 2**23

# A folder in which a process compiles is at most so old: an older one is of a process that ended.
STALE_SECONDS = 24 * 3600

_log = logging.getLogger("tinyedge")

# A compiler's message is cut to this many lines in an error.
MESSAGE_LINES = 20
# What compilers and linkers say where a disk is full: those of C's library, and ziglang.
FULL_DISK = ("No space left on device", "Disk quota exceeded", "NoSpaceLeft", "DiskQuota")


@dataclass(frozen=True)
class Compiler:
    """A C compiler: how it is called, and its version as it says it."""

    command: tuple[str, ...]
    version: str

    @property
    def flags(self) -> tuple[str, ...]:
        """What it is given before all else."""
        return () if "clang" in self.version else GCC_FLAGS


def find(command: str | Sequence[str] | None = None) -> Compiler:
    """The compiler of that command line, else cc, gcc or clang on the PATH, else the ziglang wheel.

    Raises DeviceError if there is none.
    """
    if command is not None:
        words = tuple(shlex.split(command) if isinstance(command, str) else command)
        return _identify(words)
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found:
            return _identify((found,))
    program = ziglang()
    if program is not None:
        return _identify((str(program), "cc"))
    raise DeviceError(
        "the cpu device",
        "it needs a C compiler, and there is none",
        id="device.compiler",
        supported="cc, gcc or clang on the PATH, or the ziglang package",
        next="install gcc or clang, or pip install '.[cpu]' in a checkout of tinyedge",
    )


def ziglang() -> Path | None:
    """The program of the ziglang package, where that is installed."""
    wheel = importlib.util.find_spec("ziglang")
    if wheel is None or wheel.origin is None:
        return None
    program = Path(wheel.origin).parent / ("zig.exe" if os.name == "nt" else "zig")
    return program if program.exists() else None


def ziglang_environment(folder: Path) -> dict[str, str]:
    """What ziglang runs in, which keeps what it makes of one text in `folder`; what it makes once
    stays in the user's cache, if the user has one.
    """
    kept = {"ZIG_LOCAL_CACHE_DIR": str(folder)}
    if os.name == "posix" and not {"HOME", "XDG_CACHE_HOME"} & {*os.environ}:
        kept["ZIG_GLOBAL_CACHE_DIR"] = str(folder)
    return {**kept, **os.environ}


@lru_cache
def _identify(command: tuple[str, ...]) -> Compiler:
    try:
        result = subprocess.run(
            [*command, "--version"], check=True, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise DeviceError(
            f"the C compiler {shlex.join(command)!r}",
            f"it does not run: {error}",
            id="device.compiler",
            next="name another one, or none to let tinyedge choose",
        ) from None
    lines = result.stdout.strip().splitlines()
    return Compiler(command, lines[0] if lines else "unknown")


# The handles of loaded libraries, and which of these nothing refers to any more. Python drops
# libraries anywhere, and an exception raised there is lost: also the KeyboardInterrupt of a Ctrl-C,
# for which any code of Python is enough, as that of a `__del__`. So none runs then; Python itself
# appends to the list, and they are unloaded later.
_loaded: dict[weakref.ref[Library], int] = {}
_unused: list[weakref.ref[Library]] = []


class Library:
    """A loaded shared library; unloaded when another one is built after its last use."""

    def __init__(self, file: Path) -> None:
        self._handle = ctypes.CDLL(str(file))
        _loaded[weakref.ref(self, _unused.append)] = self._handle._handle

    def __getitem__(self, name: str) -> ctypes._NamedFuncPointer:
        return self._handle[name]


def unload() -> None:
    """Unload the libraries that nothing refers to any more."""
    if os.name != "posix":
        return
    # Python has no public way to unload a library.
    with contextlib.suppress(ImportError):
        from _ctypes import dlclose

        while _unused:
            with contextlib.suppress(OSError, IndexError):  # another thread may take the last one
                dlclose(_loaded.pop(_unused.pop()))


@dataclass(frozen=True)
class Unit:
    """Text of C that is compiled at once."""

    text: str
    flags: tuple[str, ...] = ()  # of this unit, after those of all


def build(
    units: Sequence[Unit],
    compiler: Compiler,
    optimization: Sequence[str] = DEFAULT_OPTIMIZATION,
    cache: Path | None = None,
) -> Library:
    """Compile translation units, in parallel, and load them as one library.

    cache: a folder of libraries by content; safe with other processes that use it. None: no cache.
    What is damaged there is compiled again. Warns, once, of a folder that cannot be one.
    Raises DeviceError with the compiler's message if the source does not compile, and where a disk
    is full.
    """
    unload()
    if cache is not None and (unusable := _unusable(cache)):
        _warn(f"kernels are compiled in every process: the cache folder {cache} {unusable}")
        cache = None
    flags = (*compiler.flags, *optimization, *FLAGS)
    key = _key(units, compiler, flags)
    prefix = "new-" if cache else "tinyedge-"
    with full_disk_told(), tempfile.TemporaryDirectory(prefix=prefix, dir=cache) as name:
        folder = Path(name)
        if cache is not None and (library := _kept(cache, key, folder)) is not None:
            return library
        file = _compile(units, compiler, flags, folder)
        library = _load(file)
        if cache is not None:
            with contextlib.suppress(OSError):
                _keep(file, cache, key)
            _trim(cache, CACHE_BYTES)
        return library


def _kept(cache: Path, key: str, folder: Path) -> Library | None:
    """The library that the cache has for a key; None if it has none, or a damaged one.

    What is loaded is a copy in `folder` of the bytes that were verified: a file that is cut while
    it is mapped would end the process.
    """
    for kept in cache.glob(f"{key}-*.so"):
        with contextlib.suppress(OSError):
            content = read_regular_file(kept, CACHE_BYTES)
            if kept.stem != _stem(key, content):
                kept.unlink()
                continue
            copy = folder / "kept.so"
            copy.write_bytes(content)
            library = Library(copy)
            os.utime(kept)
            return library
    return None


def _keep(file: Path, cache: Path, key: str) -> None:
    """Put a copy of a library into the cache. One that a crash cut is known by its hash."""
    content = file.read_bytes()
    copy = file.with_name("copy.so")
    copy.write_bytes(content)
    os.replace(copy, cache / f"{_stem(key, content)}.so")


def _stem(key: str, content: bytes) -> str:
    """The name of a library in the cache: what it was made of, and its own hash."""
    return f"{key}-{hashlib.sha256(content).hexdigest()}"


def _load(file: Path) -> Library:
    try:
        return Library(file)
    except OSError as error:
        raise DeviceError(
            "the kernels",
            f"the compiled library does not load: {error}",
            id="device.compile",
            next="a temporary or cache folder that forbids execution is the usual cause",
        ) from None


def cache_folder() -> Path | None:
    """Where compiled kernels are kept: `tinyedge/kernels` in the user's cache folder.

    None, with a warning, for a user who has no home folder.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    except RuntimeError:
        _warn("kernels are compiled in every process: the user has no home folder to keep them in")
        return None
    return root / "tinyedge" / "kernels"


def _unusable(folder: Path) -> str:
    """Why a folder cannot be the cache, or nothing: only this user may write there, because what
    lies in the folder is loaded and run.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        real = folder.resolve()
        above = [parent.stat() for parent in real.parents]
        status = real.stat()
        room = shutil.disk_usage(real).free
    except (OSError, RuntimeError) as error:  # a RuntimeError of links in a circle
        return f"cannot be made: {getattr(error, 'strerror', error)}"
    if os.name == "posix":
        if status.st_uid != os.getuid() or status.st_mode & 0o022:
            return "can be written by other users"
        if any(map(_others_rename, above)):
            return "lies in a folder in which other users can replace it"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "cannot be written"
    return "" if room >= LEAST_ROOM else "has no space left"


def _others_rename(above: os.stat_result) -> bool:
    """Whether other users can rename what lies in a folder.

    Where the sticky bit is set, as for /tmp, only the owners of things can. A group of the user's
    own number is the user's alone, as most systems make it.
    """
    if above.st_uid not in (0, os.getuid()):
        return True
    writers = 0o002 if above.st_gid == os.getuid() else 0o022
    return bool(above.st_mode & writers) and not above.st_mode & stat.S_ISVTX


@lru_cache
def _warn(text: str) -> None:
    """Warn of it once."""
    _log.warning(text)


def _key(units: Sequence[Unit], compiler: Compiler, flags: Sequence[str]) -> str:
    digest = hashlib.sha256()
    texts = [part for unit in units for part in (*unit.flags, unit.text)]
    for text in (*compiler.command, compiler.version, _machine(), *flags, "", *texts):
        digest.update(text.encode())
        digest.update(b"\0")
    return digest.hexdigest()


@lru_cache
def _machine() -> str:
    """What -march=native depends on: a cache folder may be shared between machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    keys = ("model name", "flags", "Features", "CPU part")
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(keys)))


def _compile(units: Sequence[Unit], compiler: Compiler, flags: Sequence[str], folder: Path) -> Path:
    for index, unit in enumerate(units):
        (folder / f"unit{index}.c").write_text(unit.text)
    library = folder / "kernels.so"
    if len(units) == 1:
        (unit,) = units
        link = (*flags, *unit.flags, "-o", str(library), "unit0.c", "-lm")
        run([[*compiler.command, *link]], folder)
        return library
    compile_only = [flag for flag in flags if flag != "-shared"]
    commands = [
        [*compiler.command, *compile_only, *unit.flags, "-c", f"unit{index}.c"]
        for index, unit in enumerate(units)
    ]
    run(commands, folder)
    objects = [f"unit{index}.o" for index in range(len(units))]
    run([[*compiler.command, *flags, "-o", str(library), *objects, "-lm"]], folder)
    return library


def run(
    commands: Sequence[Sequence[str]], folder: Path, environment: Mapping[str, str] | None = None
) -> None:
    """Run commands at the same time; raise DeviceError with the first failure's message, or where
    a full disk made it fail.

    environment: of the commands; default: this process's.
    """
    running = []
    try:
        for command in commands:
            running.append(
                subprocess.Popen(
                    command,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                )
            )
        results = [process.communicate()[0] for process in running]
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.communicate()
    for process, output in zip(running, results, strict=True):
        if process.returncode:
            lines = output.strip().splitlines()
            for line in lines:
                if any(said in line for said in FULL_DISK):
                    places = f"{folder} and to {tempfile.gettempdir()}"
                    raise _full_disk(f"the C compiler writes to {places}: {line.strip()}")
            lines = lines or [f"it ended with status {process.returncode}"]
            if len(lines) > MESSAGE_LINES:
                lines = [*lines[:MESSAGE_LINES], "..."]
            raise DeviceError(
                "the kernels",
                "the C compiler refused them:\n    " + "\n    ".join(lines),
                id="device.compile",
                next="report it with the model; another compiler may accept them",
            )


@contextlib.contextmanager
def full_disk_told() -> Iterator[None]:
    """Raise DeviceError where kernels are written to a disk that is full, not OSError."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise _full_disk(str(error)) from None


def _full_disk(said: str) -> DeviceError:
    """The error for files of C and of compiled kernels that no disk has space for. said: by whom
    and of which file it was found.
    """
    return DeviceError(
        "the kernels",
        f"no space left on the disk for what is compiled: {said}",
        id="device.compile",
        next="free some space, or set TMPDIR, or XDG_CACHE_HOME if the file lies in a cache, to a "
        "folder that has some",
    )


def _trim(cache: Path, limit: int) -> None:
    """Delete the libraries used longest ago until the rest fits, and what killed processes left."""
    files = []
    stale = time.time() - STALE_SECONDS
    with os.scandir(cache) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                status = entry.stat()
                if entry.name.endswith(".so"):
                    files.append((status.st_mtime, status.st_size, entry.path))
                elif entry.name.startswith("new-") and status.st_mtime < stale:
                    shutil.rmtree(entry.path)
    files.sort(key=lambda entry: entry[:2], reverse=True)
    total = 0
    for _, size, file in files:
        total += size
        if total > limit:
            with contextlib.suppress(OSError):
                os.unlink(file)
