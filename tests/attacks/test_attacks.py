"""Hostile bundles are refused by the id that the shared table gives, and by nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.attacks import make
from tests.bundles import programs
from tinyedge.core.errors import BundleError
from tinyedge.export.bundle.check import check
from tinyedge.export.bundle.manifest import decode
from tinyedge.export.bundle.reading import read
from tinyedge.export.bundle.writing import write

EXPECTED: dict[str, dict[str, str]] = json.loads(make.EXPECTED.read_text("ascii"))


@pytest.fixture(scope="module")
def attacks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attacks")
    make.make(folder)
    return folder


def test_the_table_names_every_attack() -> None:
    assert sorted(EXPECTED) == sorted(make.ATTACKS)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_attack(attacks: Path, name: str) -> None:
    expected = EXPECTED[name]["id"]
    if not expected:
        read(attacks / name).goldens()
        return
    with pytest.raises(BundleError) as caught:
        read(attacks / name)
    assert caught.value.id == expected


def test_without_hashes_only_the_hashes_are_skipped(attacks: Path) -> None:
    read(attacks / "bit_in_the_weights", hashes=False)
    with pytest.raises(BundleError) as caught:
        read(attacks / "cut_weights", hashes=False)
    assert caught.value.id == "bundle.file.size"


def _survives(text: bytes) -> None:
    try:
        check(decode(text))
    except BundleError as error:
        assert error.id.startswith("bundle.")


def test_every_flipped_or_missing_byte_is_accepted_or_refused(tmp_path: Path) -> None:
    program = programs.plain()
    write(program, tmp_path, goldens=programs.goldens(program))
    text = (tmp_path / "manifest.json").read_bytes()
    for position in range(len(text)):
        for bit in (0, 1 + position % 7):
            flipped = bytearray(text)
            flipped[position] ^= 1 << bit
            _survives(bytes(flipped))
        _survives(text[:position])
        _survives(text[:position] + text[position + 1 :])


NASTY: tuple[Any, ...] = (-1, 0, 1, 3, 2**31, 2**53 - 1, True, "", "$mul", [], [[]], {}, ["add", 1])


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) below a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        yield value, key
        if isinstance(item, (dict, list)):
            yield from _places(item)


def test_every_value_replaced_by_nasty_ones_is_accepted_or_refused(tmp_path: Path) -> None:
    program = programs.everything()
    manifest = write(program, tmp_path, goldens=programs.goldens(program))
    accepted = 0
    for number, (container, key) in enumerate(_places(manifest)):
        before = container[key]
        for value in NASTY[number % 4 :: 4]:
            container[key] = value
            (tmp_path / "manifest.json").write_text(make.spell(manifest), "ascii")
            try:
                read(tmp_path, hashes=False).goldens()
                accepted += 1
            except BundleError as error:
                assert error.id.startswith("bundle.")
        container[key] = before
    assert accepted > 100  # names, options, flops: a reader that refuses everything is no test
