"""The contract between the compiler and a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.ir.lowered import Geometry, Linear
from tinyedge.core.ir.uop import UOp


@dataclass(frozen=True)
class LoweredArg:
    """A kernel's buffer argument: its PARAM node as the kernel uses it; whether it is written."""

    param: UOp
    written: bool
    weight: bool
    # of an input that is pictures: how many, and the bytes of a pixel
    picture: tuple[int, int] | None = None


@dataclass(frozen=True)
class LoweredKernel:
    """What a target prints: one kernel's text, given its lowered form."""

    name: str
    linear: Linear
    geometry: Geometry
    arguments: tuple[LoweredArg, ...]
    symbols: tuple[str, ...]


class Compiler(Protocol):
    """What compiles kernels at export, for the architectures that are asked for."""

    def check(self, architectures: Sequence[str]) -> tuple[str, ...]:
        """The architectures in order; none: the default ones. Raises InputError, DeviceError."""
        ...

    def build(
        self, text: str, architectures: Sequence[str], warn: Callable[[str], None]
    ) -> Mapping[str, bytes]:
        """The kernels' file compiled: content by the name of the bundle's file."""
        ...

    def versions(self, architectures: Sequence[str]) -> Sequence[str]:
        """Each architecture and what compiles for it, for the bundle's record."""
        ...


@dataclass(frozen=True)
class Target:
    """One target: its facts, its rewrites and its printer."""

    name: str
    # caps by profile name, "default" being what every device of the kind guarantees
    profiles: Mapping[str, Caps]
    render: Callable[[LoweredKernel], str]  # text of a kernel
    prelude: str  # text that goes before all kernels
    fp64_prelude: str = ""  # likewise, after it, before those of reference values
    suffix: str = "txt"  # of the file of kernels in a bundle
    # what runs its bundles, and lies in them: "web" (JavaScript and a page), "c", or nothing
    runtime: str = ""
    precision: str = "fp32"  # what is exported unless asked otherwise
    build: str = ""  # options of the device's compiler
    # what a bundle of several programs says that a profile's requires of a device, in words that
    # the device knows; profiles that are not named here can be a bundle's only one
    requires: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # what compiles kernels at export; None: devices compile their text
    compiler: Compiler | None = None
    # kernels reach no memory but what is bound to them, whatever they say: those of a stranger may
    # be run
    isolated: bool = False
    # the most pictures that a kernel may take as textures; 0: it takes their bytes alone
    textures: int = 0

    def caps(self, profile: str = "default") -> Caps:
        """The facts of a profile. Raises KeyError."""
        return self.profiles[profile]
