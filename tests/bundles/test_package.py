"""An export that fails, is killed or meets a full disk leaves the old bundle or the new one."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.bundles import programs
from tinyedge.core.errors import InputError
from tinyedge.export.bundle.reading import read
from tinyedge.export.package import replace
from tinyedge.export.package.package import write_bundle
from tinyedge.export.package.replace import PARTIAL, STALE_SECONDS
from tinyedge.export.stamps import stamp

ROOT = Path(__file__).resolve().parents[2]

EXPORT = """
import os, resource, signal, sys
from tests.bundles import programs
from tinyedge.export.package.package import write_bundle

out, how = sys.argv[1:]
calls = 0

def progress(done, total):
    global calls
    calls += 1
    if how == "kill" and calls == 3:
        os.kill(os.getpid(), signal.SIGKILL)

if how == "full":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
weights = tuple(programs.weight(f"w{n}", 1 << 18, n) for n in range(4))
write_bundle(programs.plain(weights), out, progress=progress)
"""


def export(out: Path, how: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", EXPORT, str(out), how]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_bundle_is_written_with_its_extras(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>hello</p>")
    out = tmp_path / "new" / "model"
    extras = {"index.html": page, "src/tinyedge.js": b"export {}"}
    assert write_bundle(programs.plain(), out, extras=extras) == out
    assert (out / "index.html").read_text() == "<p>hello</p>"
    assert (out / "src" / "tinyedge.js").read_bytes() == b"export {}"
    read(out)
    assert [path.name for path in out.parent.iterdir()] == ["model"]
    assert out.stat().st_mode & 0o777 == out.parent.stat().st_mode & 0o777


@pytest.mark.parametrize("name", ["manifest.json", "kernels.wgsl", "../x", "/x", "", "a//b", ".x"])
def test_extras_cannot_leave_or_replace(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError) as caught:
        write_bundle(programs.plain(), tmp_path / "out", extras={name: b""})
    assert caught.value.id == "export.extra"


def test_an_old_bundle_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "model"
    write_bundle(programs.plain(), out, extras={"index.html": b"old"})
    write_bundle(programs.everything(), out, extras={"index.html": b"new"})
    assert read(out).program.kernels[1].name == "count_1"
    assert (out / "index.html").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_name_as_long_as_names_may_be(tmp_path: Path) -> None:
    """255 bytes, of few characters."""
    place = tmp_path / ("\N{GRINNING FACE}" * 63 + "abc")
    write_bundle(programs.plain(), place)
    write_bundle(programs.plain(), place)
    assert read(place) and [path.name for path in tmp_path.iterdir()] == [place.name]


def test_an_empty_folder_and_a_link_to_a_bundle_are_replaced(tmp_path: Path) -> None:
    out = tmp_path / "model"
    out.mkdir()
    write_bundle(programs.plain(), out)
    (tmp_path / "link").symlink_to(out)
    write_bundle(programs.everything(), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert read(out).program.target == "webgpu"
    assert len(read(out).program.entries) == 2


def test_the_current_folder_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell that stands in it would be left in a folder that is gone."""
    write_bundle(programs.plain(), tmp_path / "m", extras={"src/a.js": b""})
    for folder in (tmp_path / "m", tmp_path / "m" / "src"):
        monkeypatch.chdir(folder)
        before = snapshot(tmp_path / "m" / "src")
        with pytest.raises(InputError, match="current folder"):
            write_bundle(programs.plain(), tmp_path / "m", extras={"src/a.js": b"new"})
        assert snapshot(tmp_path / "m" / "src") == before
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(InputError, match="current folder"):
        write_bundle(programs.plain(), ".")


def test_what_is_no_bundle_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter-1.tex").write_text("It was a dark and stormy night.")
    with pytest.raises(InputError) as caught:
        write_bundle(programs.plain(), out, force=True)
    assert caught.value.id == "export.exists"
    assert [path.name for path in out.iterdir()] == ["chapter-1.tex"]
    file = tmp_path / "file"
    file.write_text("a file")
    with pytest.raises(InputError) as caught:
        write_bundle(programs.plain(), file, force=True)
    assert caught.value.id == "export.exists"
    assert file.read_text() == "a file"


def test_files_that_a_user_added_need_force(tmp_path: Path) -> None:
    out = tmp_path / "model"
    write_bundle(programs.plain(), out)
    (out / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt") as caught:
        write_bundle(programs.plain(), out)
    assert caught.value.id == "export.foreign"
    assert (out / "notes.txt").read_text() == "mine"
    write_bundle(programs.plain(), out, force=True)
    assert not (out / "notes.txt").exists()


@pytest.mark.parametrize("old", [True, False])
def test_a_killed_export_leaves_the_old_bundle_or_none(tmp_path: Path, old: bool) -> None:
    out = tmp_path / "model"
    if old:
        write_bundle(programs.everything(), out)
    before = snapshot(out) if old else {}
    assert export(out, "kill").returncode == -9
    assert out.exists() == old
    assert (snapshot(out) if old else {}) == before
    assert export(out, "").returncode == 0
    assert len(read(out).program.weights) == 4


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on file sizes")
def test_a_full_disk_leaves_the_old_bundle_and_no_rubbish(tmp_path: Path) -> None:
    out = tmp_path / "model"
    write_bundle(programs.everything(), out)
    before = snapshot(out)
    result = export(out, "full")
    assert result.returncode == 1
    assert "[export.write]" in result.stderr
    assert snapshot(out) == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), MemoryError()]
)
def test_a_failure_at_any_byte_leaves_no_rubbish(tmp_path: Path, error: BaseException) -> None:
    def fail(done: int, total: int) -> None:
        if done == total:
            raise error

    wanted = InputError if isinstance(error, OSError) else type(error)
    with pytest.raises(wanted):
        write_bundle(programs.plain(), tmp_path / "model", progress=fail)
    assert not list(tmp_path.iterdir())


def test_a_failed_rename_brings_the_old_bundle_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "model"
    write_bundle(programs.everything(), out)
    before = snapshot(out)
    rename = Path.rename
    monkeypatch.setattr(replace, "exchange", lambda one, other: False)

    def fail(self: Path, target: Path) -> Path:
        if target == out and "-old" not in self.name:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(KeyboardInterrupt):
        write_bundle(programs.plain(), out)
    assert snapshot(out) == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_a_killed_export_left_is_removed(tmp_path: Path) -> None:
    """By its name and because no process holds its lock; nothing else is."""
    for name in ("model-0123abcd", "model-0123abcd-old", "models-0123abcd", "model-mine", "model"):
        (tmp_path / f".{name}{PARTIAL}").mkdir()
    with replace.new_folder(tmp_path / "model") as living:
        write_bundle(programs.plain(), tmp_path / "model")
        left = {path.name for path in tmp_path.iterdir()} - {living.name}
    kept = [f".{name}{PARTIAL}" for name in ("model", "model-mine", "models-0123abcd")]
    assert sorted(left) == sorted([*kept, "model"])


def test_where_nothing_can_be_locked_age_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")

    def flock(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    for name, age in (("0000aaaa", STALE_SECONDS + 60), ("0000bbbb", 60)):
        folder = tmp_path / f".model-{name}{PARTIAL}"
        folder.mkdir()
        os.utime(folder, (time.time() - age,) * 2)
    for _ in range(2):
        write_bundle(programs.plain(), tmp_path / "model")
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == [f".model-0000bbbb{PARTIAL}", "model"]


def test_what_an_export_reads_is_never_deleted(tmp_path: Path) -> None:
    """Named as it is, through a link of the file or of its folder; with force or without."""
    out = tmp_path / "model"
    write_bundle(programs.plain(), out)
    inside = out / "weights-00007.bin"  # a name that a bundle's own files have
    inside.write_bytes(b"weights of the model")
    elsewhere = tmp_path / "model.onnx"
    elsewhere.write_bytes(b"a model")
    (out / "link.onnx").symlink_to(elsewhere)
    (tmp_path / "folder").symlink_to(out)
    (tmp_path / "data").symlink_to(inside)
    for name in ("model/weights-00007.bin", "model/link.onnx", "folder/link.onnx", "data"):
        for force in (True, False):
            with pytest.raises(InputError, match="would be deleted") as caught:
                write_bundle(programs.plain(), out, force=force, inputs={tmp_path / name: None})
            assert caught.value.id == "export.input"
    assert inside.exists() and (out / "link.onnx").is_symlink()
    write_bundle(programs.plain(), out, force=True, inputs={elsewhere: None})
    assert elsewhere.read_bytes() == b"a model"


def test_files_that_change_during_an_export(tmp_path: Path) -> None:
    data = tmp_path / "model.data"
    data.write_bytes(b"1234")
    inputs = {data: stamp(data.stat())}
    write_bundle(programs.plain(), tmp_path / "one", inputs=inputs)
    for change in (lambda: data.write_bytes(b"12"), data.unlink):
        change()
        with pytest.raises(InputError, match="changed") as caught:
            write_bundle(programs.plain(), tmp_path / "two", inputs=inputs)
        assert caught.value.id == "input.changed"
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_a_file_that_comes_at_the_last_moment_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "model"
    write_bundle(programs.everything(), out)
    before = snapshot(out)
    swap = replace.exchange

    def late(one: Path, other: Path) -> bool:
        if not (one / "notes.txt").exists():
            (out / "notes.txt").write_text("mine")
        return swap(one, other)

    monkeypatch.setattr(replace, "exchange", late)
    with pytest.raises(InputError, match=r"notes\.txt"):
        write_bundle(programs.plain(), out)
    assert snapshot(out) == {**before, "notes.txt": b"mine"}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


# Calls of the system are counted by a library that is loaded before the C library.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/types.h>
#include <unistd.h>

static long left; /* calls, before the next one fails */
static int started, failed, full, lacking;

/* Let so many calls of those below through. Then kill the process, or, if `is_full`, let all that
   need room fail as on a full disk. lacks: there is no renameat2. */
void shim_start(long calls, int is_full, int lacks) {
    left = calls, full = is_full, lacking = lacks, started = 1;
}

int shim_failed(void) { return failed; }

static int fails(int needs_room) {
    if (!started || (full && !needs_room)) return 0;
    if (left) return left--, 0;
    if (!full) kill(getpid(), SIGKILL);
    failed = 1;
    errno = ENOSPC;
    return 1;
}

#define CALL(type, needs_room, name, parameters, arguments) \
    type name parameters { \
        if (fails(needs_room)) return -1; \
        return ((type (*) parameters)dlsym(RTLD_NEXT, #name)) arguments; \
    }
CALL(ssize_t, 1, write, (int a, const void *b, size_t c), (a, b, c))
CALL(ssize_t, 1, writev, (int a, const void *b, int c), (a, b, c))
CALL(ssize_t, 1, sendfile, (int a, int b, off_t *c, size_t d), (a, b, c, d))
CALL(ssize_t, 1, sendfile64, (int a, int b, off_t *c, size_t d), (a, b, c, d))
CALL(ssize_t, 1, copy_file_range, (int a, off_t *b, int c, off_t *d, size_t e, unsigned f), \
     (a, b, c, d, e, f))
CALL(int, 1, fsync, (int a), (a))
CALL(int, 1, mkdir, (const char *a, mode_t b), (a, b))
CALL(int, 1, rename, (const char *a, const char *b), (a, b))
CALL(int, 0, unlink, (const char *a), (a))
CALL(int, 0, unlinkat, (int a, const char *b, int c), (a, b, c))
CALL(int, 0, rmdir, (const char *a), (a))

int renameat2(int a, const char *b, int c, const char *d, unsigned e) {
    if (lacking) {
        errno = ENOSYS;
        return -1;
    }
    if (fails(1)) return -1;
    return ((int (*)(int, const char *, int, const char *, unsigned))dlsym(RTLD_NEXT, "renameat2"))(
        a, b, c, d, e);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; \
        va_start(more, flags); \
        const int mode = flags & O_CREAT ? va_arg(more, int) : 0; \
        va_end(more); \
        if (flags & O_CREAT && fails(1)) return -1; \
        return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
"""

# In each child one more call is let through, until a child comes to its end.
EVERY_CALL = """
import ctypes, itertools, os, sys
from pathlib import Path
from tests.bundles import programs
from tinyedge.core.errors import InputError
from tinyedge.export.bundle.reading import read
from tinyedge.export.package.package import write_bundle
from tinyedge.export.package.replace import remove_left

folder, mode = Path(sys.argv[1]), sys.argv[2]
full, lacking, fresh = mode == "full", mode == "lacking", mode == "fresh"
shim = ctypes.CDLL(None)
place = folder / "model"
extras = {"index.html": b"page", "src/a.js": folder / "a.js"}
old = programs.everything()
new = programs.plain(tuple(programs.weight(f"w{n}", 1 << 10, n) for n in range(2)))

def held():
    "What lies at the place, whole and verified."
    if not os.path.lexists(place):
        return ""
    bundle = read(place)
    bundle.goldens()
    assert (place / "index.html").read_bytes() and (place / "src" / "a.js").read_bytes()
    return "old" if len(bundle.program.entries) == 2 else "new"

seen = []
for number in itertools.count():
    if not fresh:
        write_bundle(old, place, extras=extras)
    child = os.fork()
    if child == 0:
        shim.shim_start(ctypes.c_long(number), full, lacking)
        try:
            write_bundle(new, place, extras=extras)
        except InputError as error:
            assert error.id == "export.write" and "No space left" in error.because, error
            os._exit(3)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(4)
        os._exit(0 if shim.shim_failed() else 5)
    _, status = os.waitpid(child, 0)
    now = held()
    code = os.waitstatus_to_exitcode(status)
    assert code in (5, 0, 3) if full else code in (5, -9), (number, code)
    if code in (0, 5):
        assert now == "new", (number, now)
    elif code == 3:
        assert now == "old", (number, now)
    elif fresh:
        assert now in ("", "new"), (number, now)
    elif not lacking:
        assert now in ("old", "new"), (number, now)
    if code == 3:
        assert sorted(os.listdir(folder)) == ["a.js", "model"], (number, os.listdir(folder))
    remove_left(place)
    assert sorted(os.listdir(folder)) == ["a.js", *["model"] * bool(held())], number
    assert fresh or held(), number
    seen.append(now)
    if code == 5:
        break
    if fresh and held():
        import shutil
        shutil.rmtree(place)
print(number, seen.count("old"), seen.count("new"), seen.count(""))
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM)
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", folder / "shim.so", folder / "shim.c", "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "shim.so"


@pytest.mark.skipif(sys.platform != "linux", reason="counts calls of glibc")
@pytest.mark.parametrize(
    ("mode", "least"), [("kill", 30), ("fresh", 20), ("full", 20), ("lacking", 30)]
)
def test_an_export_ends_at_any_call_of_the_system(
    tmp_path: Path, shim: Path, mode: str, least: int
) -> None:
    """Killed before each call that changes files, or with a disk that is full from there on.

    lacking: the system has no exchange, so that the place may be empty for a moment, but the old
    bundle comes back.
    """
    (tmp_path / "a.js").write_text("export {}")
    end = subprocess.run(
        [sys.executable, "-c", EVERY_CALL, str(tmp_path), mode],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LD_PRELOAD": str(shim)},
    )
    assert end.returncode == 0, end.stdout + end.stderr
    calls, olds, news, none = map(int, end.stdout.split())
    assert calls > least and news > 1
    if mode in ("kill", "full"):
        assert none == 0 and olds > 15


WRITERS = """
import os, sys
from pathlib import Path
from tests.bundles import programs
from tinyedge.export.bundle.reading import read
from tinyedge.export.package.package import write_bundle

place = Path(sys.argv[1])
fall_back = sys.argv[2] == "in two"
if fall_back:
    from tinyedge.export.package import replace
    replace.exchange = lambda one, other: False

def work(number):
    weights = tuple(programs.weight(f"w{n}", 1 << 8, n) for n in range(number))
    for _ in range(40):
        if number:
            write_bundle(programs.plain(weights), place)
        elif not fall_back:
            read(place)

write_bundle(programs.plain(), place)
children = []
for number in range(4):
    child = os.fork()
    if child == 0:
        try:
            work(number)
        except BaseException as error:
            print(repr(error), error, flush=True)
            os._exit(1)
        os._exit(0)
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children], os.listdir(place.parent))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
@pytest.mark.parametrize("how", ["at once", "in two"])
def test_several_exports_to_one_place(tmp_path: Path, how: str) -> None:
    """Each of three writers succeeds 40 times, a reader finds a whole bundle; nothing is left."""
    command = [sys.executable, "-c", WRITERS, str(tmp_path / "model"), how]
    end = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert end.stdout == "[0, 0, 0, 0] ['model']\n", end.stdout + end.stderr
