"""The webgpu target."""

from __future__ import annotations

from tinyedge.core.compiler.target import Target
from tinyedge.targets.webgpu.caps import PROFILES
from tinyedge.targets.webgpu.render import render

TARGET = Target(
    name="webgpu",
    profiles=PROFILES,
    narrow={
        "int64": "int32",
        "uint64": "uint32",
        "float64": "float32",
        "float16": "float32",
        "int8": "int32",
        "int16": "int32",
        "uint8": "uint32",
        "uint16": "uint32",
    },
    storage={"bool": "int32"},
    render=render,
    prelude="",
    isolated=True,
)
