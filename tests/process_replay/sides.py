"""The two sides: which commits, their code in worktrees of their own, and their results."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.process_replay.corpus import Case

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "process_replay"
WORKER = Path(__file__).with_name("worker.py")
MARK = "[changes kernels]"
BASE = "PROCESS_REPLAY_BASE"  # the environment's: what is compared with if none is given

Results = dict[str, Any]


class ReplayError(Exception):
    """The sides cannot be compared."""


def git(*words: str, root: Path = ROOT) -> str:
    """What git prints. Raises ReplayError."""
    done = subprocess.run(
        ("git", *words), cwd=root, capture_output=True, text=True, check=False, encoding="utf-8"
    )
    if done.returncode:
        raise ReplayError(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def commit_of(name: str, root: Path = ROOT) -> str | None:
    """A commit's hash, None if this clone does not have it."""
    try:
        return git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", root=root)
    except ReplayError:
        return None


def usual_base(root: Path = ROOT) -> str | None:
    """What HEAD is compared with if nobody says: $PROCESS_REPLAY_BASE, else where this branch left
    main, and on main itself the parent. None where there is no parent: the first commit, or a
    shallow clone. Raises ReplayError where the variable names no commit."""
    if named := os.environ.get(BASE):
        found = commit_of(named, root)
        if found is None:
            raise ReplayError(f"{BASE} is {named!r}, and there is no such commit here")
        return found
    head = commit_of("HEAD", root)
    main = commit_of("main", root) or commit_of("origin/main", root)
    if head and main:
        try:
            base = git("merge-base", head, main, root=root)
        except ReplayError:  # a shallow clone: the two have no common commit here
            base = head
        if base != head:
            return base
    return commit_of("HEAD~1", root)


def exempt(base: str, head: str, root: Path = ROOT) -> bool:
    """Whether the message of a commit after `base`, up to `head`, has the mark."""
    return MARK in git("log", "--format=%B", f"{base}..{head}", root=root)


@contextmanager
def checkout(commit: str | None, root: Path = ROOT) -> Iterator[Path]:
    """A folder with the files of a commit; None: the working tree, uncommitted changes included."""
    if commit is None:
        yield root
        return
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        place = Path(folder) / commit[:12]
        git("worktree", "add", "--detach", str(place), commit, root=root)
        try:
            yield place
        finally:
            git("worktree", "remove", "--force", str(place), root=root)


def corpus_digest(cases: Mapping[str, Case]) -> str:
    """Of all that decides a side's results but its code: cases, files, the worker, libraries."""
    digest = hashlib.sha256(WORKER.read_bytes())
    versions = [importlib.metadata.version(name) for name in ("numpy", "onnx")]
    digest.update(repr((sys.version, versions)).encode())
    for name, case in sorted(cases.items()):
        digest.update(repr((name, case.target, sorted(case.options.items()))).encode())
        for file in case.files():
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


class Side:
    """One side's compilation in a process of its own. Its results are kept by the commit's hash."""

    def __init__(self, commit: str | None, cases: Mapping[str, Case], root: Path = ROOT) -> None:
        self.commit, self.cases, self.root = commit, cases, root
        self.kept = CACHE / f"{commit}-{corpus_digest(cases)}.json" if commit else None

    def start(self, stack: ExitStack) -> subprocess.Popen[str] | None:
        """The process, None if the results are there. The stack ends it and removes its files."""
        if self.kept and self.kept.is_file():
            return None
        place = stack.enter_context(checkout(self.commit, self.root))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="replay-")))
        self.made = folder / "results.json"
        listed = folder / "cases.json"
        listed.write_text(json.dumps({n: case.record() for n, case in self.cases.items()}), "utf-8")
        command = (sys.executable, str(WORKER), str(listed), str(self.made))
        process = subprocess.Popen(
            command,
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(place), "PYTHONHASHSEED": "0"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        stack.callback(process.kill)
        return process

    def results(self, process: subprocess.Popen[str] | None) -> Results:
        """By a case's name what came of it. Raises ReplayError if the process failed."""
        if process is None:
            assert self.kept
            kept: Results = json.loads(self.kept.read_text("utf-8"))
            return kept
        errors = process.communicate()[1]
        if process.returncode:
            name = self.commit or "the working tree"
            raise ReplayError(f"{name} does not compile the corpus:\n{errors}")
        made = self.made.read_text("utf-8")
        if self.kept:
            CACHE.mkdir(parents=True, exist_ok=True)
            whole = self.kept.with_suffix(f".{os.getpid()}")
            whole.write_text(made, "utf-8")
            os.replace(whole, self.kept)
        results: Results = json.loads(made)
        return results


def both(
    base: str, head: str | None, cases: Mapping[str, Case], root: Path = ROOT
) -> tuple[Results, Results]:
    """What the two sides make of the cases, at the same time."""
    sides = (Side(base, cases, root), Side(head, cases, root))
    with ExitStack() as stack:
        old, new = ((side, side.start(stack)) for side in sides)
        return old[0].results(old[1]), new[0].results(new[1])
