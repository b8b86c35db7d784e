"""The qcom target."""

from __future__ import annotations

from tinyedge.core.compiler.target import Target
from tinyedge.targets.qcom.caps import PROFILES
from tinyedge.targets.qcom.render import BUILD, prelude, render

TARGET = Target(
    name="qcom",
    profiles=PROFILES,
    narrow={"float64": "float32", "float16": "float32"},
    storage={"bool": "int32"},
    render=render,
    prelude=prelude(),
    precision="fp16",
    build=BUILD,
)
