"""Blocks of weights are checked and used as they arrive; other entries' kernels come later."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyedge
from tests.runtimes.site import HURRY, Site, evaluate
from tests.targets import programs
from tinyedge.core.program.program import Launch, Port, Program
from tinyedge.export.bundle import weights
from tinyedge.export.bundle.bounds import BLOCK_BYTES
from tinyedge.export.bundle.manifest import decode, encode
from tinyedge.export.package.package import write_bundle

pytestmark = pytest.mark.browser

NAME = "weights-00000.bin"
BLOCKS = 4  # the last one shorter


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`addition`: x + w, of 3.5 MiB; w counts up."""
    root = tmp_path_factory.mktemp("bundles")
    numbers = np.arange((BLOCKS - 1) * BLOCK_BYTES // 4 + BLOCK_BYTES // 8, dtype=np.float32)
    tinyedge.export_function(
        lambda x: x + tinyedge.Tensor(numbers),
        {"x": np.zeros(len(numbers), np.float32)},
        target="webgpu",
        out=root / "addition",
    )
    return root


@pytest.fixture
def bundle(site: Site) -> Path:
    return site.folder / "addition"


RUN = """
const model = await load("/addition/");
const ones = new Float32Array(model.inputs[0].shape[0]).fill(1);
const {data} = Object.values(await model.run({x: ones}))[0];
const right = data.every((value, i) => value === i + 1);
"""


def test_blocks_are_checked_as_they_arrive(page: Any, bundle: Path) -> None:
    """No more than a block is hashed at a time, and in order. All is read into few places."""
    got = evaluate(
        page,
        """
        const sizes = [], {digest} = SubtleCrypto.prototype, places = new Set();
        const {read} = ReadableStreamBYOBReader.prototype;
        ReadableStreamBYOBReader.prototype.read = async function (view) {
          const size = view.buffer.byteLength, part = await read.call(this, view);
          places.add([size, part.value.buffer.byteLength].join());
          return part;
        };
        SubtleCrypto.prototype.digest = function (name, bytes) {
          sizes.push(bytes.byteLength);
          return digest.call(this, name, bytes);
        };
        """
        + RUN
        + """
        const parts = async (url, init) => {
          const {body} = await fetch(url, init), reader = body.getReader();
          return new Response(new ReadableStream({
            async pull(to) {
              const {done, value} = await reader.read();
              if (done) to.close();
              else to.enqueue(value);
            },
          }));
        };
        const other = await load("/addition/", {fetch: parts});
        const again = Object.values(await other.run({x: ones}))[0].data;
        return [right, sizes, [...places], again.every((value, i) => value === i + 1)];
        """,
    )
    assert got[0] and got[3], "also where the browser cannot choose the place"
    assert got[2] == ["65536,65536"]
    size = (bundle / NAME).stat().st_size
    blocks = [size % BLOCK_BYTES, *[BLOCK_BYTES] * (BLOCKS - 1)]
    assert sorted(got[1])[-2 * BLOCKS :] == sorted(2 * blocks)
    assert max(got[1]) == BLOCK_BYTES


def test_files_take_over_the_memory_of_those_before(
    page: Any, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many files the weights are in, their blocks are hashed in one place."""
    monkeypatch.setattr(weights, "SHARD_BYTES", BLOCK_BYTES + 4096)
    numbers = np.arange(4 * BLOCK_BYTES // 4, dtype=np.float32)
    tinyedge.export_function(
        lambda x: x + tinyedge.Tensor(numbers),
        {"x": np.zeros(len(numbers), np.float32)},
        target="webgpu",
        out=site.folder / "several",
    )
    assert len(list((site.folder / "several").glob("weights-*.bin"))) == 4
    got = evaluate(
        page,
        """
        const places = new Set(), {digest} = SubtleCrypto.prototype;
        SubtleCrypto.prototype.digest = function (name, bytes) {
          if (bytes.buffer?.byteLength === 2 ** 20) places.add(bytes.buffer);
          return digest.call(this, name, bytes);
        };
        """
        + RUN.replace("/addition/", "/several/")
        + "return [right, places.size];",
    )
    assert got == [True, 1]


@pytest.mark.parametrize("at", [0, BLOCK_BYTES - 1, BLOCK_BYTES, -1])
def test_a_damaged_block(page: Any, site: Site, bundle: Path, at: int) -> None:
    content = bytearray((bundle / NAME).read_bytes())
    content[at] ^= 1
    (bundle / NAME).write_bytes(content)
    fault = evaluate(page, 'return errorOf(() => load("/addition/"))')
    assert (fault["id"], fault["subject"]) == ("bundle.file.hash", NAME)
    assert site.asked[NAME] == 2


@pytest.mark.parametrize("ranges", [True, False])
def test_a_cut_within_a_block(page: Any, site: Site, bundle: Path, ranges: bool) -> None:
    """What was checked stays; where the server knows no ranges, all comes again."""
    site.ranges = ranges
    size = (bundle / NAME).stat().st_size
    site.cuts = {NAME: [BLOCK_BYTES + 100_000, *([BLOCK_BYTES] if ranges else [])]}
    got = evaluate(page, HURRY + RUN + "return [right, model.stats.bytesFetched];")
    assert got[0]
    assert site.asked[NAME] == (3 if ranges else 2)
    if ranges:
        assert site.sent[NAME] == size


def test_a_short_file(page: Any, bundle: Path) -> None:
    path = bundle / NAME
    path.write_bytes(path.read_bytes()[:-4])
    fault = evaluate(page, 'return errorOf(() => load("/addition/"))')
    assert fault["id"] == "bundle.file.size"


@pytest.mark.parametrize("change", ["one less", "of kernels", "one list less", "unlisted"])
def test_blocks_that_do_not_fit(page: Any, bundle: Path, change: str) -> None:
    path = bundle / "manifest.json"
    manifest = decode(path.read_bytes())
    number = [file["name"] for file in manifest["files"]].index(NAME)
    kernels = [file["name"] for file in manifest["files"]].index("kernels.wgsl")
    if change == "one less":
        manifest["blocks"][number].pop()
    elif change == "of kernels":
        manifest["blocks"][kernels].append("0" * 64)
    elif change == "one list less":
        manifest["blocks"].pop()
    else:
        manifest["features"].remove("blocks")
    path.write_bytes(encode(manifest))
    id = "bundle.feature" if change == "unlisted" else "bundle.index"
    assert evaluate(page, 'return errorOf(() => load("/addition/"))')["id"] == id
    with pytest.raises(tinyedge.TinyedgeError) as raised:
        tinyedge.load(bundle)
    # Python refuses a key of a feature that is not listed before it asks what is used.
    assert raised.value.id == ("bundle.field" if change == "unlisted" else id)


def test_python_checks_blocks_too(bundle: Path) -> None:
    path = bundle / "manifest.json"
    manifest = decode(path.read_bytes())
    number = [file["name"] for file in manifest["files"]].index(NAME)
    content = (bundle / NAME).read_bytes()
    for start, sha256 in zip(
        range(0, len(content), BLOCK_BYTES), manifest["blocks"][number], strict=True
    ):
        assert hashlib.sha256(content[start : start + BLOCK_BYTES]).hexdigest() == sha256
    manifest["blocks"][number][1] = "0" * 64
    path.write_bytes(encode(manifest))
    with pytest.raises(tinyedge.TinyedgeError) as raised:
        tinyedge.load(bundle)
    assert raised.value.id == "bundle.file.hash"


def _two_entries() -> Program:
    """main doubles, other negates: a kernel each, that of `other` first."""
    target = "webgpu"
    port = (64,), "float32"
    entries = tuple(
        programs.Entry(name, ("x",), ("y",), (Launch(kernel, (0, 1), (1, 1, 1)),))
        for name, kernel in (("main", 1), ("other", 0))
    )
    return programs.program(
        target,
        inputs=(Port("x", "float32", *port, 0),),
        outputs=(Port("y", "float32", *port, 1),),
        states=(),
        buffers=(programs.place(0), programs.place(1)),
        weights=(),
        kernels=(
            programs.kernel(target, "negate", "ww", "b1[i] = -b0[i];"),
            programs.kernel(target, "twice", "ww", "b1[i] = b0[i] + b0[i];"),
        ),
        entries=entries,
    )


def test_the_first_entry_does_not_wait_for_the_others_kernels(page: Any, site: Site) -> None:
    """load and run are done while the other pipeline is held back; its run waits, or fails."""
    write_bundle(_two_entries(), site.folder / "two")
    got = evaluate(
        page,
        """
        const {createComputePipelineAsync} = GPUDevice.prototype, asked = [];
        let go;
        const held = new Promise((resolve) => (go = resolve));
        GPUDevice.prototype.createComputePipelineAsync = async function (descriptor) {
          asked.push(descriptor.compute.entryPoint);
          if (asked.at(-1) === "negate") await held;
          return createComputePipelineAsync.call(this, descriptor);
        };
        const results = [];
        const model = await load("/two/");
        const run = async (entry) => (await model.run({x}, {entry})).y.data[1];
        results.push(await run(), model.stats.pipelines);
        const given = new Float32Array(64).fill(5), waits = model.run({x: given}, {entry: "other"});
        // What was given counts, not what it is later.
        given.fill(7);
        const after = run();
        setTimeout(go, 100);
        results.push((await waits).y.data[1], await after, model.stats.pipelines);
        return [results, asked];
        """,
    )
    assert got == [[2, 1, -5, 2, 2], ["twice", "negate"]]


def test_a_fault_in_the_other_entry(page: Any, site: Site) -> None:
    program = _two_entries()
    write_bundle(program, site.folder / "two")
    got = evaluate(
        page,
        """
        const {createComputePipelineAsync} = GPUDevice.prototype;
        GPUDevice.prototype.createComputePipelineAsync = async function (descriptor) {
          if (descriptor.compute.entryPoint === "negate") throw new Error("too hard");
          return createComputePipelineAsync.call(this, descriptor);
        };
        const model = await load("/two/");
        const fault = await errorOf(() => model.run({x}, {entry: "other"}));
        return [fault.id, fault.subject, (await model.run({x})).y.data[1]];
        """,
    )
    assert got == ["device.kernel", "kernel negate", 2]
