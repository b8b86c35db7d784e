"""The webgpu target."""

from __future__ import annotations

from tinyedge.core.compiler.target import Target
from tinyedge.targets.webgpu.caps import PROFILES
from tinyedge.targets.webgpu.render import render

TARGET = Target(
    name="webgpu",
    profiles=PROFILES,
    render=render,
    prelude="",
    suffix="wgsl",
    runtime="web",
    isolated=True,
    textures=16,  # what every device binds
)
