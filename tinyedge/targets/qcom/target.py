"""The qcom target."""

from __future__ import annotations

from tinyedge.core.compiler.target import Target
from tinyedge.targets.qcom.caps import PROFILES
from tinyedge.targets.qcom.render import BUILD, prelude, render

TARGET = Target(
    name="qcom",
    profiles=PROFILES,
    render=render,
    prelude=prelude(),
    suffix="cl",
    runtime="c",
    precision="fp16",
    build=BUILD,
)
