"""The cpu target."""

from __future__ import annotations

from tinyedge.core.compiler.target import Target
from tinyedge.targets.cpu.caps import PROFILES, REQUIRES
from tinyedge.targets.cpu.render import prelude, render

TARGET = Target(
    name="cpu",
    profiles=PROFILES,
    render=render,
    prelude=prelude("prelude.c"),
    fp64_prelude=prelude("prelude_fp64.c"),
    suffix="c",
    runtime="c",
    requires=REQUIRES,
)
