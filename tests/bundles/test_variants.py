"""Bundles of several programs: what they share, which is picked, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyedge
from tests.bundles import programs
from tinyedge.choices import choose_profiles
from tinyedge.cli import execute
from tinyedge.core.errors import BundleError, DeviceError, InputError
from tinyedge.core.program.program import Variant
from tinyedge.export.bundle.reading import Choice, read, read_manifest, variants_of
from tinyedge.export.bundle.writing import write
from tinyedge.model import lacking, pick
from tinyedge.targets.cpu.caps import PROFILES, REQUIRES

WIDE = Choice("wide", ("avx2", "telepathy"))
PLAIN = Choice("plain", ())


def written(folder: Path) -> Path:
    variants = programs.variants()
    write(variants[-1].program, folder, goldens=programs.goldens(variants[-1].program),
          variants=variants)  # fmt: skip
    return folder


def test_weights_of_equal_bytes_are_stored_once(tmp_path: Path) -> None:
    folder = written(tmp_path)
    sizes = {file.name: file.stat().st_size for file in folder.glob("weights-*")}
    assert sizes == {"weights-00000.bin": 64, "weights-00001.bin": 256}
    wide, plain = (read(folder, choose=lambda *_, n=name: n) for name in ("wide", "plain"))
    assert [weight.name for weight in plain.program.weights] == ["w"]
    # In the order of the files, and buffers follow.
    assert [weight.name for weight in wide.program.weights] == ["w", "own"]
    before = programs.variants()[0].program
    for number, buffer in enumerate(before.buffers):
        now = wide.program.buffers[number]
        assert (buffer.weight < 0) == (now.weight < 0)
        if buffer.weight >= 0:
            old, new = before.weights[buffer.weight], wide.program.weights[now.weight]
            assert (old.name, bytes(old.data)) == (new.name, bytes(new.data))  # type: ignore[arg-type]
    assert {file["name"] for file in plain.manifest["files"]} == {
        "golden-00000.bin",
        "kernels.wgsl",
        "weights-00000.bin",
    }
    facts = {each["name"]: each for each in variants_of(folder)}
    kernels = (folder / "kernels-00001.wgsl").stat().st_size
    assert facts["wide"]["added_bytes"] == kernels + 256
    assert facts["plain"]["added_bytes"] == (folder / "kernels.wgsl").stat().st_size


def test_two_weights_of_equal_bytes_in_a_program_have_places_of_their_own(tmp_path: Path) -> None:
    twice = programs.plain((programs.weight("w", 16), programs.weight("w2", 16)))
    variants = [Variant("a", ("x",), twice), Variant("b", (), twice)]
    write(twice, tmp_path, variants=variants)
    for name in "ab":
        found = read(tmp_path, choose=lambda *_, n=name: n)
        assert [weight.name for weight in found.program.weights] == ["w", "w2"]
    assert (tmp_path / "weights-00000.bin").stat().st_size == 256 + 64


def test_a_bundle_of_one_program_says_nothing_of_variants(tmp_path: Path) -> None:
    write(programs.plain(), tmp_path)
    assert b"variant" not in (tmp_path / "manifest.json").read_bytes()
    assert read(tmp_path).choices == () and variants_of(tmp_path) == []


def test_all_have_the_same_goldens_and_one_hash_to_trust(tmp_path: Path) -> None:
    folder = written(tmp_path)
    wide, plain = (read(folder, choose=lambda *_, n=name: n) for name in ("wide", "plain"))
    assert wide.plan == plain.plan
    assert wide.manifest["golden"] == plain.manifest["golden"]
    for one, two in zip(wide.goldens(), plain.goldens(), strict=True):
        for a, b in zip(one.outputs, two.outputs, strict=True):
            np.testing.assert_array_equal(a.data, b.data)


def cut(folder: Path) -> None:
    path = folder / "manifest-00001.json"
    path.write_bytes(path.read_bytes()[:-1])


def changed(folder: Path) -> None:
    path = folder / "manifest-00001.json"
    path.write_bytes(path.read_bytes().replace(b'"own"', b'"one"'))


@pytest.mark.parametrize(
    "damage, id",
    [
        (lambda folder: (folder / "manifest-00001.json").unlink(), "bundle.file.missing"),
        (cut, "bundle.file.size"),
        (changed, "bundle.file.hash"),
        (lambda folder: (folder / "weights-00001.bin").unlink(), "bundle.file.missing"),
    ],
)
def test_what_is_damaged_is_refused_where_it_is_picked(
    tmp_path: Path, damage: Callable[[Path], None], id: str
) -> None:
    folder = written(tmp_path)
    damage(folder)
    assert read(folder).variant == "plain"
    with pytest.raises(BundleError) as caught:
        read(folder, choose=lambda *_: "wide")
    assert caught.value.id == id


def test_a_program_with_other_inputs_is_refused(tmp_path: Path) -> None:
    wide, last = programs.variants()
    (port,) = wide.program.inputs
    other = replace(wide.program, inputs=(replace(port, shape=(2, 8)),))
    write(last.program, tmp_path, variants=[replace(wide, program=other), last])
    with pytest.raises(BundleError) as caught:
        read(tmp_path, choose=lambda *_: "wide")
    assert caught.value.id == "bundle.name" and "inputs" in caught.value.because


def test_the_manifest_of_a_variant(tmp_path: Path) -> None:
    folder = written(tmp_path)
    assert read_manifest(folder)["variant"] == {"name": "plain", "requires": ["sse2"]}
    assert "variants" not in read_manifest(folder, "wide")
    with pytest.raises(InputError) as caught:
        read_manifest(folder, "narrow")
    assert caught.value.id == "option.variant" and caught.value.supported == "wide, plain"


def test_the_best_that_the_machine_can_run_is_picked() -> None:
    assert pick("cpu", (PLAIN, WIDE)) == "plain"
    assert pick("cpu", (WIDE, PLAIN)) == "plain"
    assert pick("cpu", (Choice("a", ()), PLAIN)) == "a"
    assert pick("cpu", (WIDE, PLAIN), "plain") == "plain"
    assert pick("cpu", ()) == ""


@pytest.mark.parametrize("choices, name", [((WIDE, PLAIN), "wide"), ((WIDE,), None)])
def test_an_error_says_what_is_missing(choices: Sequence[Choice], name: str | None) -> None:
    with pytest.raises(DeviceError) as caught:
        pick("cpu", choices, name)
    assert caught.value.id == "device.limits"
    assert "wide needs" in caught.value.because and "telepathy" in caught.value.because


def test_no_such_variant() -> None:
    for choices in ((WIDE, PLAIN), ()):
        with pytest.raises(InputError) as caught:
            pick("cpu", choices, "narrow")
        assert caught.value.id == "option.variant"


def test_the_processor_has_what_the_system_says() -> None:
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    line = next((line for line in flags.splitlines() if line.startswith("flags")), "")
    if not line:
        pytest.skip("no list of flags here")
    words = {word for each in REQUIRES.values() for word in each} - {"neon"}
    has = words - set(lacking("cpu", Choice("", tuple(sorted(words)))))
    assert has == words & set(line.split(":")[1].split())


def test_profiles_in_order_of_what_they_require() -> None:
    assert choose_profiles("cpu", "default") == ("default",)
    assert choose_profiles("cpu", "sse, default,avx512") == ("avx512", "default", "sse")
    assert choose_profiles("cpu", ["default", "avx512"]) == ("avx512", "default")
    assert set(REQUIRES) == set(PROFILES)
    refused = ("default,altivec", "default,default", "default,", "", [])
    for target, given in (*(("cpu", given) for given in refused), ("qcom", "default,buffers")):
        with pytest.raises(InputError) as caught:
            choose_profiles(target, given)
        assert caught.value.id == "option.profile"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A product for each of three kinds of processors."""
    rng = np.random.default_rng(1)
    w = rng.normal(size=(48, 64)).astype(np.float32)
    return tinyedge.export_function(
        lambda x: (x @ w).relu(),
        {"x": rng.normal(size=(12, 48)).astype(np.float32)},
        target="cpu",
        out=tmp_path_factory.mktemp("exported") / "product.tinyedge",
        profile="sse,default,neon",
    )


def test_each_program_is_of_its_profile(exported: Path) -> None:
    """The default one computes with vectors of 8 floats, the others of 4."""
    lanes = {}
    for name in ("sse", "default", "neon"):
        program = read(exported, choose=lambda *_, n=name: n).program
        assert program.options["profile"] == name
        lanes[name] = [s.count("f32x8") for s in (k.source for k in program.kernels)]
    assert lanes["default"][0] and not lanes["sse"][0] and not lanes["neon"][0]


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """What a command prints as JSON."""
    capsys.readouterr()
    assert execute([*map(str, arguments), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_load_and_the_commands_pick(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.random.default_rng(2).normal(size=(12, 48)).astype(np.float32)
    runnable = [
        name
        for name in ("default", "neon", "sse")
        if not lacking("cpu", Choice("", REQUIRES[name]))
    ]
    with tinyedge.load(exported) as model:
        assert model.variant == runnable[0]
        (want,) = model.run({"x": x}).values()
    for name in runnable:
        with tinyedge.load(exported, variant=name) as model:
            assert model.variant == name
            (got,) = model.run({"x": x}).values()
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    verified = told(capsys, "verify", exported)
    assert verified["agrees"] and [case["variant"] for case in verified["cases"]] == runnable
    assert set(verified["not_run"]) == {"default", "neon", "sse"} - set(runnable)
    assert all(words for words in verified["not_run"].values())
    shown = told(capsys, "inspect", exported)
    assert [each["name"] for each in shown["variants"]] == ["default", "neon", "sse"]
    assert shown["variant"] == "sse"
    done = told(capsys, "run", exported, "--random", "--variant", "sse", "--out", tmp_path)
    assert done["variant"] == "sse"
    assert told(capsys, "bench", exported, "--runs", 1)["variant"] == runnable[0]


def test_a_bundle_of_one_replaces_one_of_several(tmp_path: Path) -> None:
    x = {"x": np.ones(4, np.float32)}
    for profile, files in (("sse,default", 2), ("default", 1)):
        out = tinyedge.export_function(
            lambda x: x + 1.0, x, target="cpu", out=tmp_path / "f.tinyedge", profile=profile
        )
        assert len(list(out.glob("model*.c"))) == files
        assert (out / "model.mk").exists() == (files == 2)
