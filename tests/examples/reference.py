"""The driving example in numpy, in double precision: its frames, its warp, its network, its states.

Nothing here comes from tinyedge: weights and sizes are those of examples/driving/model.py.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "driving"


def _load_model() -> Any:
    spec = importlib.util.spec_from_file_location("driving_model", EXAMPLE / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


model = _load_model()


# --- cameras: as examples/driving/host.c makes them -----------------------------------------------


def _mix(x: Array) -> Array:
    """The integer hash of the bundle's goldens."""
    x = x + np.uint32(0x9E3779B9)
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x85EBCA6B)
    x ^= x >> np.uint32(13)
    x *= np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def camera_frame(camera: int, number: int, size: tuple[int, int]) -> tuple[Array, Array]:
    """Y [rows, columns] and UV [rows / 2, columns / 2, 2] of frame `number` of camera 0 or 1."""
    rows, columns = size
    row = np.arange(rows, dtype=np.uint32)[:, None]
    column = np.arange(columns, dtype=np.uint32)
    # Tiles of one brightness each, which move to the left, under a gradient that moves down.
    tile = ((column + np.uint32(4 * number)) >> np.uint32(5)) + (row >> np.uint32(5)) * 256
    hashed = _mix(tile.astype(np.uint32) + np.uint32(camera << 24))
    y = (hashed & 127) + ((row + np.uint32(2 * number)) & 127)
    half = hashed[::2, ::2]
    uv = np.stack([64 + ((half >> 8) & 127), 64 + ((half >> 16) & 127)], axis=-1)
    return y.astype(np.uint8), uv.astype(np.uint8)


def transform(camera: int, size: tuple[int, int], turn: tuple[float, float, float]) -> Array:
    """Where a pixel of the model's luma lies in the camera's: float32 [3, 3].

    turn: roll, pitch and yaw of the camera in radians, to first order.
    """
    rows, columns = size
    focal = (2648, 567)[camera] * columns / 1928
    seen, horizon = ((910, 47.6), (455, 151.8))[camera]
    roll, pitch, yaw = turn
    lens = np.array([[focal, 0, columns / 2], [0, focal, rows / 2], [0, 0, 1]])
    mount = np.array([[1, -roll, yaw], [roll, 1, -pitch], [-yaw, pitch, 1]])
    view = np.array([[1 / seen, 0, -256 / seen], [0, 1 / seen, -horizon / seen], [0, 0, 1]])
    return (lens @ mount @ view).astype(np.float32)


# --- the warp -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Warped:
    """What frame.onnx should give.

    Where a place is nearly in the middle of pixels, rounding decides: there `sure` is false, and
    any of `choices` is right.
    """

    planes: Array
    sure: Array
    choices: Array

    def wrong(self, given: Array) -> int:
        """How many pixels are not what they should be."""
        allowed = (given == self.choices).any(axis=0)
        return int(np.where(self.sure, given != self.planes, ~allowed).sum())


def warp(y: Array, uv: Array, transform: Array, margin: float = 2e-3) -> Warped:
    """The six planes of an NV12 frame, uint8 [1, 6, 128, 256]."""
    parts = [_warp_plane(plane, y, uv, transform, margin) for plane in range(6)]
    planes, sure, choices = (np.stack(arrays, axis=-3) for arrays in zip(*parts, strict=True))
    return Warped(planes[None], sure[None], choices[:, None])


def _warp_plane(
    plane: int, y: Array, uv: Array, transform: Array, margin: float
) -> tuple[Array, Array, Array]:
    """One plane [128, 256], where it is sure, and the four pixels around each place."""
    luma = plane < 4
    pixels = y if luma else uv[:, :, plane - 4]
    u = np.arange(256.0) * 2 + (plane // 2 if luma else 0.5)
    v = np.arange(128.0)[:, None] * 2 + (plane % 2 if luma else 0.5)
    points = np.stack(np.broadcast_arrays(u, v, np.ones_like(u + v)))
    x, y, w = np.einsum("ij,jhw->ihw", transform.astype(np.float64), points)
    places = [at if luma else (at - 0.5) / 2 for at in (y / w, x / w)]

    def pixel(*rounded: Array) -> Array:
        inside = (np.clip(at, 0, n - 1) for at, n in zip(rounded, pixels.shape, strict=True))
        result: Array = pixels[tuple(at.astype(int) for at in inside)]
        return result

    sure = np.ones(x.shape, bool)
    for at, size in zip(places, pixels.shape, strict=True):
        near = np.clip(at, -1, size)
        sure &= np.abs(near - np.floor(near) - 0.5) > margin
    around = [
        pixel(down(places[0]), across(places[1]))
        for down in (np.floor, np.ceil)
        for across in (np.floor, np.ceil)
    ]
    return pixel(*map(np.rint, places)), sure, np.stack(around)


# --- the network ----------------------------------------------------------------------------------


class Network:
    """drive.onnx with its states."""

    def __init__(self, file: Path) -> None:
        graph = onnx.load(file).graph
        self.weights = {w.name: numpy_helper.to_array(w) for w in graph.initializer}
        self.states: Arrays = {}
        self.greatest = 0.0  # of all values between layers
        self.reset()

    def reset(self) -> None:
        self.states = {
            "frames": model.test_card(0),
            "wide_frames": model.test_card(1),
            "last_desire": np.zeros((1, 8)),
            "desires": np.zeros((1, 99, 8)),
            "features": np.zeros((1, 99, 512)),
        }

    def see(self, name: str, planes: Array) -> None:
        """A new frame: the older of the two before it goes."""
        self.states[name] = np.concatenate([self.states[name], planes], axis=1)[:, 6:]

    def run(self, desire: Array, traffic: Array) -> Arrays:
        """The outputs of one step, after which the states are the next one's."""
        states = self.states
        result = self.step({**states, "desire": desire, "traffic_convention": traffic})
        states["last_desire"] = result["last_desire_out"]
        for name in ("desires", "features"):
            longer = np.concatenate([states[name], result[f"{name}_out"]], axis=1)
            states[name] = longer[:, 1:]
        return result

    def step(self, inputs: Mapping[str, Array]) -> Arrays:
        """The outputs of drive.onnx for all of its inputs."""
        given = {name: np.asarray(array, np.float64) for name, array in inputs.items()}
        feature = self._normalized(self._vision(given), "feature")
        begun = np.maximum(given["desire"] - given["last_desire"], 0)
        x = self._context(feature, begun, given)
        x = np.concatenate([x, given["traffic_convention"]], axis=1)
        parts = []
        for _, names in model.HEADS:
            parts.append(self._linear(_elu(self._linear(x, f"{names[0]}.hidden")), names[0]))
        return {
            "outputs": np.concatenate([*parts, feature], axis=1),
            "last_desire_out": given["desire"],
            "desires_out": begun[None],
            "features_out": feature[None],
        }

    def _vision(self, given: Arrays) -> Array:
        seen = []
        for camera in ("frames", "wide_frames"):
            x = (given[camera][0] - 128) / 128
            seen.append(_swish(self._convolution(x, f"{camera}.stem", 2)))
        x = np.concatenate(seen)
        for number, stage in enumerate(model.STAGES):
            for repeat in range(stage.blocks):
                x = self._block(x, f"stage{number}.{repeat}", stage, 1 if repeat else stage.stride)
        x = _swish(self._convolution(x, "top"))
        return self._linear(x.reshape(1, -1), "feature")

    def _block(self, x: Array, name: str, stage: Any, stride: int) -> Array:
        y = x
        if stage.expansion > 1:
            y = _swish(self._convolution(x, f"{name}.expand"))
        y = _swish(self._depthwise(y, f"{name}.depth", stride))
        if stage.gated:
            gate = y.mean(axis=(1, 2), keepdims=True)
            gate = _swish(self._convolution(gate, f"{name}.squeeze"))
            y = y * _sigmoid(self._convolution(gate, f"{name}.excite"))
        y = self._convolution(y, f"{name}.project")
        return x + y if x.shape == y.shape and stride == 1 else y

    def _context(self, feature: Array, begun: Array, given: Arrays) -> Array:
        desires, features = given["desires"][0], given["features"][0]
        past = features + self._linear(desires, "past.desire") + self.weights["past.places"]
        present = feature + self._linear(begun, "present.desire")
        query, keys, values = (
            self._linear(x, name).reshape(len(x), model.ATTENTION_HEADS, -1)
            for x, name in ((present, "query"), (past, "keys"), (past, "values"))
        )
        scores = np.einsum("qhd,khd->hqk", query, keys) / np.sqrt(query.shape[-1])
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        x = np.einsum("hqk,khd->qhd", scores, values).reshape(1, -1)
        x = present + self._linear(x, "mixed")
        x = x + self._linear(_elu(self._linear(x, "widened")), "narrowed")
        return self._normalized(x, "context")

    def _linear(self, x: Array, name: str) -> Array:
        return self._noted(x @ self._weight(name) + self._weight(name, "bias"))

    def _convolution(self, x: Array, name: str, stride: int = 1) -> Array:
        weight = self._weight(name)
        windows = _windows(x, weight.shape[-1], stride)
        result = np.tensordot(weight, windows, axes=((1, 2, 3), (0, 3, 4)))
        return self._noted(result + self._weight(name, "bias")[:, None, None])

    def _depthwise(self, x: Array, name: str, stride: int) -> Array:
        weight = self._weight(name)[:, 0]
        windows = _windows(x, weight.shape[-1], stride)
        result = np.einsum("chwij,cij->chw", windows, weight)
        return self._noted(result + self._weight(name, "bias")[:, None, None])

    def _noted(self, x: Array) -> Array:
        self.greatest = max(self.greatest, float(np.abs(x).max()))
        return x

    def _normalized(self, x: Array, name: str) -> Array:
        centered = x - x.mean(axis=-1, keepdims=True)
        scaled = centered / np.sqrt((centered**2).mean(axis=-1, keepdims=True) + 1e-5)
        return scaled * self._weight(name, "norm.scale") + self._weight(name, "norm.bias")

    def _weight(self, name: str, kind: str = "weight") -> Array:
        return self.weights[f"{name}.{kind}"].astype(np.float64)


def _windows(x: Array, kernel: int, stride: int) -> Array:
    """[channels, H, W] -> [channels, H / stride, W / stride, kernel, kernel], zeros around."""
    edge = kernel // 2
    padded = np.pad(x, ((0, 0), (edge, edge), (edge, edge)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(1, 2))
    return windows[:, ::stride, ::stride]


def _sigmoid(x: Array) -> Array:
    result: Array = 0.5 + 0.5 * np.tanh(x / 2)
    return result


def _swish(x: Array) -> Array:
    return x * _sigmoid(x)


def _elu(x: Array) -> Array:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))
