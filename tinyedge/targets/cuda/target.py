"""The cuda target."""

from __future__ import annotations

from tinyedge.core.compiler.target import Target
from tinyedge.targets.cuda import compiler
from tinyedge.targets.cuda.caps import PROFILES
from tinyedge.targets.cuda.render import prelude, render

TARGET = Target(
    name="cuda",
    profiles=PROFILES,
    render=render,
    prelude=prelude(),
    suffix="cu",
    runtime="c",
    compiler=compiler,
)
