"""Targets by name, and the options that each of them knows.

This is the only place that turns a target's name into a target.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Sequence
from dataclasses import replace

from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.target import Target
from tinyedge.core.errors import InputError
from tinyedge.core.tensor.graph import Graphs
from tinyedge.export.limits import Limits
from tinyedge.model import TARGETS

GROWTH, WEB_GROWTH = 1.0, 0.25  # by transformed filters, of the weights' bytes
MOST_VARIANTS = 8
PRECISIONS = ("fp32", "fp16")
# Programs that a bundle for webgpu can hold for where there is no WebGPU, and their targets' homes.
FALLBACKS = {"wasm": "tinyedge.targets.cpu.fallback"}


def find_target(name: str) -> Target:
    """The target called `name`. Raises InputError."""
    if name not in TARGETS:
        raise InputError(
            f"target {name!r}",
            "there is no such target",
            id="target.name",
            supported=", ".join(TARGETS),
        )
    target: Target = importlib.import_module(f"tinyedge.targets.{name}.target").TARGET
    return target


def find_fallback(name: str, target: str) -> Target:
    """The target of a fallback, for a bundle of a target. Raises InputError."""
    _choose("fallback", name, FALLBACKS)
    if find_target(target).runtime != "web":
        raise InputError(
            f"fallback {name!r}",
            f"bundles for {target} run without a browser",
            id="option.fallback",
            supported="with target webgpu",
            next="leave --fallback out",
        )
    fallback: Target = importlib.import_module(FALLBACKS[name]).TARGET
    return fallback


def choose_options(
    target: str,
    precision: str | None = None,
    *,
    optimize: bool = True,
    winograd: bool = True,
    profile: str = "default",
    arch: str | Sequence[str] | None = None,
    limits: Limits | None = None,
) -> Options:
    """Options for a target; without a precision, with its own. Raises InputError."""
    chosen = find_target(target).precision if precision is None else precision
    names = arch.split(",") if isinstance(arch, str) else arch or ()
    allowed = limits or Limits()
    options = Options(
        optimize,
        profile,
        chosen,
        architectures=tuple(name.strip() for name in names),
        folded_work=allowed.folded_work,
        folded_growth=allowed.folded_growth,
        winograd=_winograd_growth(find_target(target)) if winograd else 0.0,
    )
    check_options(target, options)
    return options


def choose_profiles(target: str, given: str | Sequence[str]) -> tuple[str, ...]:
    """The profiles of an export, those that require most of a device first.

    Several make a bundle of as many programs, of which a runtime picks the first that its device
    can run. Raises InputError.
    """
    found = find_target(target)
    names = given.split(",") if isinstance(given, str) else given
    names = tuple(name.strip() for name in names)
    for place, name in enumerate(names):
        _choose_profile(target, name)
        if name in names[:place]:
            raise InputError(
                f"profile {name!r}",
                "it is given twice",
                id="option.profile",
                next="name each profile once",
            )
    if not names:
        raise InputError("the profiles", "there is none", id="option.profile", next="name one")
    if len(names) == 1:
        return names
    single = [name for name in names if name not in found.requires]
    if single:
        raise InputError(
            f"profile {single[0]!r} beside others",
            f"no runtime can tell which devices of target {target} are for it",
            id="option.profile",
            supported=f"together: {', '.join(found.requires) or 'none of this target'}",
            next="export a bundle for each",
        )
    if len(names) > MOST_VARIANTS:
        raise InputError(
            f"{len(names)} profiles",
            "a bundle cannot hold so many",
            id="option.profile",
            supported=f"at most {MOST_VARIANTS}",
        )
    return tuple(sorted(names, key=lambda name: -len(found.requires[name])))


def for_training(options: Options, precision: str | None, source: Graphs) -> Options:
    """The options of float32 where no precision was chosen and states are made of gradients."""
    return replace(options, precision="fp32") if precision is None and source.trains else options


def _winograd_growth(target: Target) -> float:
    """How many times the weights' bytes transformed filters may add: pages wait for them."""
    return WEB_GROWTH if target.runtime == "web" else GROWTH


def check_options(target: str, options: Options) -> None:
    """Raise InputError unless there is such a target and it knows these options."""
    profiles = find_target(target).profiles
    _choose("precision", options.precision, PRECISIONS)
    _choose_profile(target, options.profile)
    if options.precision == "fp16" and not profiles[options.profile].fp16_storage:
        raise InputError(
            "precision 'fp16'",
            f"the {target} target keeps no fp16 values in memory",
            id="option.precision",
            supported="fp32",
            next=f"leave --precision out, or export for one of {_keeping_fp16()}",
        )
    compiler = find_target(target).compiler
    if compiler is not None and options.architectures:
        compiler.check(options.architectures)
    elif options.architectures:
        raise InputError(
            f"architectures {', '.join(options.architectures)}",
            f"kernels for {target} are compiled on the device",
            id="option.arch",
            next="leave --arch out, or export for cuda",
        )


def _keeping_fp16() -> str:
    """The targets that keep fp16 values in memory, whatever the device."""
    return ", ".join(t for t in TARGETS if find_target(t).profiles["default"].fp16_storage)


def say_profiles(target: str) -> str:
    """The profiles of a target, for messages."""
    from tinyedge.export.bundle.reading import Choice, say_choices

    found = find_target(target)
    return say_choices(Choice(name, found.requires.get(name, ())) for name in found.profiles)


def _choose_profile(target: str, name: str) -> None:
    _choose("profile", name, find_target(target).profiles, say_profiles(target))


def _choose(option: str, value: str, choices: Collection[str], said: str = "") -> None:
    if value not in choices:
        raise InputError(
            f"{option} {value!r}",
            f"there is no such {option}",
            id=f"option.{option}",
            supported=said or ", ".join(choices),
        )


def pixels_of(target: str) -> str:
    """What pictures are made of, where a target's bundles run."""
    return "rgba" if find_target(target).runtime == "web" else "rgb"
