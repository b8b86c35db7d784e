"""The C reader accepts and refuses what the other readers do, with the same error ids."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks import make
from tests.attacks.test_attacks import NASTY, _places
from tests.bundles import programs
from tests.runtimes_c import build
from tinyedge.core.errors import BundleError
from tinyedge.export.bundle.check import check
from tinyedge.export.bundle.manifest import decode
from tinyedge.export.bundle.reading import read
from tinyedge.export.bundle.writing import write

VERDICTS = Path(__file__).with_name("verdicts.mjs")

EXPECTED: dict[str, dict[str, str]] = json.loads(make.EXPECTED.read_text("ascii"))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The verdicts' program, with sanitizers where they are installed."""
    out = tmp_path_factory.mktemp("reader") / "reader"
    compiler, flags = build.sanitized()
    return build.program(out, "reader.c", flags, compiler=compiler)


@pytest.fixture(scope="module")
def fast_reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build.program(tmp_path_factory.mktemp("reader") / "reader", "reader.c", ("-O2",))


def test_attacks(reader: Path, tmp_path: Path) -> None:
    make.make(tmp_path / "attacks")
    names = sorted(EXPECTED)
    answers = build.run(reader, *(tmp_path / "attacks" / name for name in names)).splitlines()
    expected = {name: EXPECTED[name]["id"] for name in names}
    assert dict(zip(names, answers, strict=True)) == expected


def mutations(data: bytes, step: int) -> Iterator[bytes]:
    """As reader.c makes them: cut before each byte, then with each of its bits flipped."""
    for position in range(0, len(data), step):
        yield data[:position]
        for bit in range(8):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            yield bytes(changed)


def python_id(text: bytes) -> str:
    try:
        check(decode(text))
    except BundleError as error:
        return error.id
    return ""


def folder_id(folder: Path, name: str, data: bytes, goldens: bool = False) -> str:
    """Python's verdict on a bundle with another content of one file; goldens: of those, too."""
    if name == "manifest.json" and python_id(data):
        return python_id(data)
    path = folder / name
    original = path.read_bytes()
    path.write_bytes(data)
    try:
        bundle = read(folder)
        if goldens:
            bundle.goldens()
    except BundleError as error:
        return error.id
    finally:
        path.write_bytes(original)
    return ""


def compare_mutations(reader: Path, folder: Path, step: int) -> int:
    answers = iter(build.run(reader, "--mutations", folder, step).splitlines())
    files = json.loads((folder / "manifest.json").read_text("ascii"))["files"]
    total = 0
    for name in ("manifest.json", *(record["name"] for record in files)):
        data = (folder / name).read_bytes()
        for number, changed in enumerate(mutations(data, step)):
            total += 1
            place = (name, number // 9 * step, number % 9)
            assert (place, next(answers)) == (place, folder_id(folder, name, changed))
    assert next(answers, None) is None
    return total


def test_cut_and_flipped_bytes(reader: Path, tmp_path: Path) -> None:
    program = programs.plain()
    write(program, tmp_path, goldens=programs.goldens(program)[:1])
    assert compare_mutations(reader, tmp_path, 31) > 500


@pytest.mark.parametrize("step", [61, pytest.param(13, marks=pytest.mark.slow)])
def test_cut_and_flipped_data_in_javascript(step: int, tmp_path: Path) -> None:
    """Of kernels and weights when it loads them, of golden files when it verifies."""
    if not shutil.which("node"):
        return
    program = programs.everything()
    manifest = write(program, tmp_path, goldens=programs.goldens(program))
    answers = iter(build.run("node", VERDICTS, "--mutations", tmp_path, step).splitlines())
    assert next(answers) == ""
    kinds = set()
    for name in (record["name"] for record in manifest["files"]):
        kinds.add(name.split("-")[0].split(".")[0])
        data = (tmp_path / name).read_bytes()
        for number, changed in enumerate(mutations(data, step)):
            place = (name, number // 9 * step, number % 9)
            expected = folder_id(tmp_path, name, changed, goldens=True)
            assert (place, next(answers)) == (place, expected)
            assert expected in ("bundle.file.hash", "bundle.file.size")
    assert next(answers, None) is None
    assert kinds == {"golden", "kernels", "weights"}


@pytest.mark.slow
def test_every_cut_and_every_flipped_bit(fast_reader: Path, tmp_path: Path) -> None:
    """Of bundles of about 4 KB with every kind of record."""
    for program in (programs.everything(), programs.pictures()):
        folder = tmp_path / program.target
        folder.mkdir()
        write(program, folder, goldens=programs.goldens(program)[1:2])
        total = sum(path.stat().st_size for path in folder.iterdir())
        assert 2000 < total < 8000
        assert compare_mutations(fast_reader, folder, 1) == 9 * total
        texts = list(mutations((folder / "manifest.json").read_bytes(), 1))
        file = tmp_path / "texts"
        file.write_bytes(joined(texts))
        compare_javascript(file, texts, [python_id(text) for text in texts])


def nasty_texts(tmp_path: Path, step: int) -> list[bytes]:
    """Manifests with each of their values replaced by odd ones, and some with flipped bits."""
    texts = []
    for program in (programs.everything(), programs.pictures()):
        folder = tmp_path / program.target
        folder.mkdir()
        manifest = write(program, folder, goldens=programs.goldens(program))
        texts += mutations((folder / "manifest.json").read_bytes(), 17 * step)
        for number, (container, key) in enumerate(_places(manifest)):
            before = container[key]
            for value in NASTY[number % step :: step]:
                container[key] = value
                texts.append(make.spell(manifest).encode("ascii"))
            container[key] = before
    return texts


def joined(texts: list[bytes]) -> bytes:
    """As the programs read them: each after its length."""
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def compare_texts(reader: Path, texts: list[bytes], tmp_path: Path) -> None:
    file = tmp_path / "texts"
    file.write_bytes(joined(texts))
    expected = [python_id(text) for text in texts]
    assert expected.count("") > 10
    # Past the manifest, the C reader finds no other file.
    answers = build.run(reader, "--texts", file).splitlines()
    stages = ["" if answer.startswith("bundle.file.") else answer for answer in answers]
    for text, answer, wanted in zip(texts, stages, expected, strict=True):
        assert answer == wanted, text
    compare_javascript(file, texts, expected)


def compare_javascript(file: Path, texts: list[bytes], expected: list[str]) -> None:
    """file: the texts, each after its length."""
    if not shutil.which("node"):
        return
    answers = build.run("node", VERDICTS, "--texts", file).removesuffix("\n").split("\n")
    for text, answer, wanted in zip(texts, answers, expected, strict=True):
        # The JS runtime serves one target only, which has no images and no variants.
        unknown = b'"images"' in text or b'"variants"' in text
        foreign = ["bundle.feature"] if unknown else []
        assert answer in (wanted, "bundle.target", *foreign), text


def test_odd_values(reader: Path, tmp_path: Path) -> None:
    compare_texts(reader, nasty_texts(tmp_path, 9), tmp_path)


@pytest.mark.slow
def test_all_odd_values(fast_reader: Path, tmp_path: Path) -> None:
    compare_texts(fast_reader, nasty_texts(tmp_path, 1), tmp_path)
