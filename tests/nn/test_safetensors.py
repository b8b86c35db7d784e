"""Tensors in files: written and read again, as other programs write them, and hostile ones."""

from __future__ import annotations

import errno
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinyedge import InputError, Tensor, nn
from tinyedge.core import dtype as dt
from tinyedge.nn.safetensors import TYPES


def file_of(header: Any, body: bytes, size: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + body


def test_a_file_by_hand_is_read(tmp_path: Path) -> None:
    """Written by the format's description: with metadata, out of order, a scalar, nothing."""
    path = tmp_path / "hand.safetensors"
    header = {
        "__metadata__": {"format": "pt"},
        "b": {"dtype": "I32", "shape": [], "data_offsets": [8, 12]},
        "a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
        "none": {"dtype": "F32", "shape": [0, 3], "data_offsets": [8, 8]},
        "half": {"dtype": "BF16", "shape": [2], "data_offsets": [12, 16]},
    }
    body = struct.pack("<ffi2H", 1.5, -2.0, -7, 0x3F80, 0xC000)
    path.write_bytes(file_of(header, body))
    state = nn.load(path)
    assert state["a"].numpy().tolist() == [[1.5], [-2.0]]
    assert int(state["b"].numpy()) == -7 and state["none"].shape == (0, 3)
    assert state["half"].dtype is dt.bfloat16
    assert state["half"].cast(dt.float32).numpy().tolist() == [1.0, -2.0]


@pytest.mark.parametrize("name", TYPES)
def test_each_type_is_written_and_read(name: str, tmp_path: Path) -> None:
    dtype = TYPES[name]
    bits = np.random.default_rng(1).integers(0, 256, 24 * dtype.held.itemsize).astype(np.uint8)
    raw = bits % 2 if dtype is dt.bool_ else bits
    array = np.frombuffer(raw.tobytes(), dtype.held.numpy).reshape(4, 6)
    tensor = Tensor.weight("x", array).bitcast(dtype)
    nn.save(tmp_path / "x.safetensors", {"x": tensor, "y": tensor})
    found = nn.load(tmp_path / "x.safetensors")
    assert [*found] == ["x", "y"] and found["x"].dtype is dtype
    assert found["x"].bitcast(dtype.held).numpy().tobytes() == array.tobytes()
    assert [p.name for p in tmp_path.iterdir()] == ["x.safetensors"]


def test_a_model_is_kept(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm(4))
    nn.save(tmp_path / "model", nn.state_dict(model))
    other = nn.load_state_dict(
        nn.Sequential(nn.Linear(3, 4), nn.BatchNorm(4)), nn.load(tmp_path / "model")
    )
    assert (other[0].weight.numpy() == model[0].weight.numpy()).all()


def entry(**changes: Any) -> dict[str, Any]:
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


HOSTILE = {
    "empty": b"",
    "a size alone": struct.pack("<Q", 2),
    "a huge header": file_of({}, b"", 1 << 62),
    "no JSON": file_of(b"{,}", b""),
    "no text": file_of(b"\xff\xfe", b""),
    "deep": file_of(b"[" * 100_000, b""),
    "long digits": file_of(b'{"a":' + b"9" * 10_000 + b"}", b""),
    "a list": file_of([], b""),
    "twice": file_of(b'{"a":1,"a":2}', b""),
    "a type": file_of(entry(dtype="F31"), bytes(8)),
    "a type of lists": file_of(entry(dtype=["F32"]), bytes(8)),
    "too few bytes": file_of(entry(), bytes(7)),
    "too many bytes": file_of(entry(), bytes(9)),
    "another size": file_of(entry(shape=[3]), bytes(8)),
    "negative": file_of(entry(shape=[-2]), bytes(8)),
    "a fraction": file_of(entry(shape=[2.0]), bytes(8)),
    "a truth": file_of(entry(shape=[True, 2]), bytes(8)),
    "backwards": file_of(entry(data_offsets=[8, 0]), bytes(8)),
    "three places": file_of(entry(data_offsets=[0, 8, 8]), bytes(8)),
    "huge shape": file_of(entry(shape=[2**62, 2**62, 0, 5]), bytes(8)),
    "huge and empty": file_of(entry(shape=[0, 2**62], data_offsets=[0, 0]), b""),
    "many axes": file_of(entry(shape=[1] * 99 + [2]), bytes(8)),
    "more of it": file_of(entry(more=1), bytes(8)),
    "overlap": file_of({**entry(), "b": {**entry()["a"], "data_offsets": [4, 12]}}, bytes(12)),
    "gap": file_of({**entry(), "b": {**entry()["a"], "data_offsets": [12, 20]}}, bytes(20)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_wrong_file_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(InputError, match=r"input\.safetensors"):
        nn.load(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match=r"input\.safetensors"):
            nn.load(path)
    with pytest.raises(InputError, match="'x' of int4"):
        nn.save(tmp_path / "x", {"x": Tensor(np.zeros(2, np.int8)).cast(dt.int4)})


def test_what_is_no_path_or_no_tensor_is_refused(tmp_path: Path) -> None:
    path: Any = None
    with pytest.raises(InputError, match="it is a NoneType"):
        nn.save(path, {"x": np.zeros(2)})
    with pytest.raises(InputError, match="it is a NoneType"):
        nn.load(path)
    with pytest.raises(InputError, match="Is a directory"):
        nn.save("", {"x": np.zeros(2)})
    with pytest.raises(InputError, match=r"'z' of numpy's complex64[\s\S]*imaginary parts"):
        nn.save(tmp_path / "x", {"z": np.zeros(2, np.complex64)})
    with pytest.raises(InputError, match="'t' of numpy's"):
        nn.save(tmp_path / "x", {"t": "text"})
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("place", ["", "missing/file"])
def test_where_nothing_can_be_written(place: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        nn.save(folder / place, {"x": np.zeros(3, np.float32)})
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tinyedge.nn.safetensors.write_whole", fails)
    with pytest.raises(InputError, match="No space left") as caught:
        nn.save(tmp_path / "x", {"a": np.zeros(2, np.float32)})
    assert "free some space" in caught.value.next
