"""Files of torch.save: written by hand and by torch, and hostile ones."""

from __future__ import annotations

import io
import os
import pickle
import random
import struct
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinyedge import InputError, nn
from tinyedge.core import dtype as dt

PROTOCOL = b"\x80\x02"
STOP = b"."


def said(value: Any) -> bytes:
    """Operations that push a value."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, tuple):
        return b"(" + b"".join(map(said, value)) + b"t"
    if isinstance(value, str):
        return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, dict):
        return b"}(" + b"".join(said(k) + said(v) for k, v in value.items()) + b"u"
    if value is None:
        return b"N"
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def name(module: str, what: str) -> bytes:
    return f"c{module}\n{what}\n".encode()


def storage(kind: str = "FloatStorage", key: Any = "0", count: Any = 6) -> bytes:
    return said(("storage", name("torch", kind), key, "cpu", count)) + b"Q"


def tensor(
    offset: Any = 0, shape: Any = (2, 3), strides: Any = (3, 1), held: bytes | None = None
) -> bytes:
    hooks = name("collections", "OrderedDict") + b")R"
    operands = (storage() if held is None else held, offset, shape, strides, False, hooks)
    return name("torch._utils", "_rebuild_tensor_v2") + said(operands) + b"R"


VALUES = np.arange(6, dtype=np.float32)


def file_of(
    body: bytes, *, order: bytes | None = None, compressed: bool = False, **more: bytes
) -> bytes:
    """A file whose pickle has these operations."""
    raw = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(raw, "w", kind) as archive:
        archive.writestr("m/data.pkl", PROTOCOL + body + STOP)
        if order is not None:
            archive.writestr("m/byteorder", order)
        archive.writestr("m/data/0", VALUES.astype(">f4" if order == b"big" else "<f4").tobytes())
        for key, value in more.items():
            archive.writestr(f"m/{key}", value)
    return raw.getvalue()


def load(tmp_path: Path, raw: bytes) -> dict[str, Any]:
    path = tmp_path / "x.pt"
    path.write_bytes(raw)
    return nn.load(path)


@pytest.mark.parametrize("order", [None, b"little", b"big"])
def test_tensors_are_views_of_storages(tmp_path: Path, order: bytes | None) -> None:
    body = said(
        {
            "w": tensor(),
            "turned": tensor(0, (3, 2), (1, 3)),
            "part": tensor(1, (2, 2), (3, 1)),
            "last": tensor(5, (), ()),
            "wide": tensor(2, (4,), (0,)),
            "none": tensor(0, (0, 7), (7, 1)),
            "epoch": 3,
            "inner": {"list": b"](" + tensor() + b"K\x05e", 7: tensor(4, (1,), (1,))},
        }
    )
    found = load(tmp_path, file_of(body, order=order))
    base = VALUES.reshape(2, 3)
    expected = {
        "w": base,
        "turned": base.T,
        "part": base[:, 1:],
        "last": base[1, 2],
        "wide": np.full(4, 2, np.float32),
        "none": np.zeros((0, 7), np.float32),
        "inner.list.0": base,
        "inner.7": VALUES[4:5],
    }
    assert [*found] == [*expected]
    for key, value in expected.items():
        assert found[key].dtype is dt.float32 and found[key].shape == value.shape
        assert (found[key].numpy() == value).all()


TORCH_NAMES = (
    *("state", "parameters", "training", "views", "types", "stored", "lists"),
    *("module", "old"),
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, torch_python: Path) -> Path:
    folder = tmp_path_factory.mktemp("torch")
    script = Path(__file__).with_name("save_with_torch.py")
    subprocess.run([torch_python, script, folder], check=True, timeout=300)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("case", TORCH_NAMES[:-2])
def test_what_torch_writes(written: Path, case: str) -> None:
    found = nn.load(written / f"{case}.pt")
    with np.load(written / f"{case}.npz") as expected:
        assert [*found] == [*expected]
        for key, values in expected.items():
            array = np.asarray(found[key].bitcast(found[key].dtype.held).numpy())
            assert array.shape == values.shape and array.tobytes() == values.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "case, because", [("module", "torch.nn.modules.container.Sequential"), ("old", "before 1.6")]
)
def test_what_torch_writes_and_is_refused(written: Path, case: str, because: str) -> None:
    with pytest.raises(InputError, match=because):
        nn.load(written / f"{case}.pt")


def calls(module: str, what: str, *operands: Any) -> bytes:
    return name(module, what) + said(operands) + b"R"


class Evil:
    """What `pickle.load` would run."""

    def __reduce__(self) -> Any:
        return os.system, ("touch evil",)


def doubled(times: int) -> bytes:
    """A list of two lists of two lists ...: 2^times tensors in few bytes."""
    body = b"](" + tensor() + b"eq\x00"
    for number in range(times):
        at = bytes([number])
        body += b"](h" + at + b"h" + at + b"eq" + bytes([number + 1])
    return body


# 20,000 times one list, under a name of 4,000 characters.
LONG_WAYS = b"]q\x000}(" + said("x" * 4000) + b"](" + b"h\x00" * 20_000 + b"eu"

ORDERED = name("collections", "OrderedDict")
HOSTILE: dict[str, tuple[bytes, str]] = {
    "os.system": (file_of(calls("os", "system", "touch evil")), "asks for os.system"),
    "posix.system": (file_of(pickle.dumps(Evil(), 2)[2:-1]), "asks for posix.system"),
    "by stack": (
        file_of(said("os") + said("system") + b"\x93" + said(("touch evil",)) + b"R"),
        "asks for os.system",
    ),
    "eval": (file_of(calls("builtins", "eval", "1")), "asks for builtins.eval"),
    "getattr": (file_of(calls("builtins", "getattr", "a", "b")), "asks for builtins.getattr"),
    "inst": (file_of(b"(" + said("touch evil") + b"ios\nsystem\n"), "operation 0x69"),
    "obj": (file_of(b"(" + ORDERED + b"o"), "operation 0x6f"),
    "ext": (file_of(b"\x82\x01"), "operation 0x82"),
    "persistent text": (file_of(b"Pos.system\n"), "operation 0x50"),
    "buffer": (file_of(b"\x97"), "operation 0x97"),
    "a name in a name": (file_of(name("torch._utils", "os.system")), "asks for torch._utils.os"),
    "a call of a value": (file_of(said("x") + b")R"), "no function"),
    "a call of a call": (file_of(ORDERED + b")R)R"), "no function"),
    "a call of a type": (file_of(calls("torch", "FloatStorage", 1 << 60)), "a type of elements"),
    "state of a tensor": (file_of(tensor() + b"}b"), "fills a dict"),
    "items of a tensor": (file_of(tensor() + b"(u"), "fills a dict"),
    "a filled OrderedDict": (file_of(ORDERED + said(((),)) + b"R"), "as it makes it"),
    "no operands": (file_of(name("torch._utils", "_rebuild_tensor_v2") + b")R"), "missing"),
    "nothing": (file_of(b""), "lacks an operand"),
    "no container": (file_of(tensor()), "no container"),
    "no mark": (file_of(b"t"), "lacks a mark"),
    "an odd dict": (file_of(b"}(K\x01u"), "without a value"),
    "a mark as a value": (file_of(b"](("), "lacks an operand"),
    "no memo": (file_of(b"h\x07"), "number 7 of its memo"),
    "too long": (file_of(b"B\xff\xff\xff\xff"), "ends too early"),
    "much too long": (file_of(b"\x8e" + b"\xff" * 8), "ends too early"),
    "a frame": (file_of(b"\x95\xff"), "ends too early"),
    "no end of a name": (file_of(b"c" + b"x" * 1000), "has no end"),
    "deep lists": (file_of(b"](" * 100_000 + b"e" * 100_000), "too deep"),
    "deep tuples": (file_of(b")" + b"\x85" * 500_000), "too deep"),
    "a list in itself": (file_of(b"]q\x00(h\x00" + tensor() + b"e"), "too deep"),
    "doubled lists": (file_of(doubled(60)), "too long"),
    "a tuple as a key": (file_of(b"}(" + b")" + b"\x85" * 500_000 + b"K\x01u"), "tuple in it is a"),
    "a list as a key": (file_of(b"}(]K\x01u"), "list in it is a key"),
    "keys of one hash": (file_of(said({(2**61 - 1) * 3: 1})), "int in it is a key"),
    "one name": (file_of(said({"a.b": tensor(), "a": {"b": tensor()}})), "called 'a.b'"),
    "long ways to many": (file_of(LONG_WAYS), "ways to what it holds are too long"),
    "a long name": (file_of(said({"x" * 5000: tensor()})), "5000 characters"),
    "outside": (file_of(said({"w": tensor(1)})), "does not lie"),
    "far outside": (file_of(said({"w": tensor(1 << 62)})), "does not lie"),
    "before": (file_of(said({"w": tensor(-1)})), "none"),
    "negative strides": (file_of(said({"w": tensor(5, (6,), (-1,))})), "none"),
    "negative sizes": (file_of(said({"w": tensor(0, (-2, -3))})), "none"),
    "true sizes": (file_of(said({"w": tensor(0, (True, 3))})), "none"),
    "a huge shape": (file_of(said({"w": tensor(0, (1 << 40,), (0,))})), "repeats elements"),
    "expanded": (file_of(said({"w": tensor(0, (4, 3), (0, 1))})), "repeats elements"),
    "huge and empty": (
        file_of(said({"w": tensor(0, (1 << 62, 1 << 62, 0), (1, 1, 1))})),
        "has the shape",
    ),
    "many axes": (file_of(said({"w": tensor(0, (1,) * 99, (1,) * 99)})), "no shape"),
    "other axes": (file_of(said({"w": tensor(0, (6,), (1, 1))})), "no shape"),
    "other elements": (file_of(said({"w": tensor(held=storage(count=7))})), "not 7 elements"),
    "no elements": (file_of(said({"w": tensor(held=storage(count=-6))})), "none"),
    "no storage": (file_of(said({"w": tensor(held=storage(key="9"))})), "missing"),
    "a way out": (file_of(said({"w": tensor(held=storage(key="../data.pkl"))})), "missing"),
    "a number as storage": (file_of(said({"w": tensor(held=said(3))})), "no storage"),
    "an odd storage": (file_of(said({"w": tensor(held=said((1,)) + b"Q")})), "none"),
    "complex": (
        file_of(said({"w": tensor(held=storage("ComplexFloatStorage"))})),
        "ComplexFloatStorage",
    ),
    "no parameter": (file_of(calls("torch._utils", "_rebuild_parameter", 1, True, 1)), "no tensor"),
    "protocol 0": (file_of(b"\x80\x00"), "protocol is 0"),
    "compressed": (file_of(said({"w": tensor()}), compressed=True), "compressed"),
    "a byte order": (file_of(said({"w": tensor()}), order=b"middle"), "byte order"),
    "cut": (file_of(said({"w": tensor()}))[:-30], "zip is damaged"),
    "another zip": (file_of(b"").replace(b"m/data.pkl", b"m/data.pkk"), "no data.pkl"),
    "changed": (file_of(said({"w": tensor()})).replace(VALUES.tobytes(), bytes(24)), "damaged"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_refused(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    raw, because = HOSTILE[case]
    with pytest.raises(InputError, match=r"input\.checkpoint") as refused:
        load(tmp_path, raw)
    assert because in refused.value.because
    assert ("contiguous()" in refused.value.next) is (because == "repeats elements")
    assert [path.name for path in tmp_path.iterdir()] == ["x.pt"]


def test_tensors_share_memory_up_to_a_limit(tmp_path: Path) -> None:
    """Many shapes of one storage, each a copy, would take more memory than a file has bytes."""
    count = 1 << 16
    big = np.zeros(count, np.float32).tobytes()
    held = storage(key="big", count=count)
    tied = {str(n): tensor(0, (count,), (1,), held) for n in range(200)}
    found = load(tmp_path, file_of(said(tied), **{"data/big": big}))
    assert len(found) == 200
    apart = {str(n): tensor(n, (count - 200,), (1,), held) for n in range(200)}
    with pytest.raises(InputError, match="share storages"):
        load(tmp_path, file_of(said(apart), **{"data/big": big}))


def test_any_damage_is_refused_or_read(tmp_path: Path) -> None:
    """Bytes of the pickle are changed, and its checksum made right again."""
    rng = random.Random(5)
    body = said({"w": tensor(), "inner": {"v": tensor(1, (2, 2), (3, 1)), 3: None}, "n": -70000})
    kept = refused = 0
    for _ in range(1500):
        changed = bytearray(body)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(changed))
            changed[at : at + rng.randint(0, 2)] = rng.randbytes(rng.randint(0, 2))
        try:
            found = load(tmp_path, file_of(bytes(changed)))
            assert all(value.numpy() is not None for value in found.values())
            kept += 1
        except InputError as error:
            assert error.id == "input.checkpoint"
            refused += 1
    assert kept > 10 and refused > 500
