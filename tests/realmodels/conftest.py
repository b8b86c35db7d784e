"""Each model is exported once, each device opened once, Chromium started once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.realmodels import cases
from tests.realmodels.inputs import Arrays
from tinyedge.core.program.replay import Replay
from tinyedge.export.bundle.reading import read
from tinyedge.export.verify import browser as browsers

# (bundle, inputs of each run) -> (outputs of each run, what the runtime counted)
Run = Callable[[Path, Sequence[Arrays]], tuple[list[Arrays], dict[str, Any]]]
Bundles = Callable[..., Path]


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Bundles:
    """The bundle of a model; see `cases.export` for what may be asked of it."""
    folder = tmp_path_factory.mktemp("realmodels")
    made: dict[tuple[Any, ...], Path] = {}

    def bundle(
        model: str,
        target: str = "webgpu",
        symbolic: bool = False,
        precision: str | None = "fp32",
        profile: str = "default",
        winograd: bool = True,
    ) -> Path:
        key = (model, target, symbolic, precision, profile, winograd)
        if key not in made:
            out = folder / f"{len(made)}-{model}.tinyedge"
            made[key] = cases.export(
                model,
                out,
                target=target,
                symbolic=symbolic,
                precision=precision,
                profile=profile,
                winograd=winograd,
            )
        return made[key]

    return bundle


@pytest.fixture
def run(place: str, request: pytest.FixtureRequest) -> Run:
    """Replay at `place`: in Python, on memory filled with NaN, or in Chromium, where
    `compatibility` is an adapter of WebGPU's compatibility mode."""
    if place in ("chromium", "compatibility"):
        name = {"chromium": "browser", "compatibility": "compatible"}[place]
        page: browsers.Browser = request.getfixturevalue(name)
        return lambda bundle, feeds: page.run_in_page(bundle, list(feeds))
    device = request.getfixturevalue({"wgpu": "webgpu_device"}.get(place, f"{place}_device"))

    def in_python(bundle: Path, feeds: Sequence[Arrays]) -> tuple[list[Arrays], dict[str, Any]]:
        with Replay(read(bundle).program, device, poison=True) as replay:
            return [replay.run(arrays) for arrays in feeds], {}

    return in_python
