"""Stored types in a real browser: callers give and get codes, goldens agree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tinyedge
from tests import stored
from tinyedge.core import dtype as dt
from tinyedge.export.bundle.reading import read
from tinyedge.export.verify.browser import Browser, runtime_source

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("types") / "bundle"
    tinyedge.export_function(stored.function, stored.examples(), target="webgpu", out=path)
    return path


def test_codes_in_and_out(browser: Browser, bundle: Path) -> None:
    inputs = stored.examples(seed=3)
    ((got,), _) = browser.run_in_page(bundle, [inputs])
    for name, want in stored.expected(inputs).items():
        np.testing.assert_array_equal(dt.codes(got[name]), dt.codes(want), err_msg=name)


def test_arrays_errors_and_goldens(browser: Browser, bundle: Path) -> None:
    program = read(bundle).program
    source = ("text/javascript", runtime_source())
    with browser.page(bundle, pages={"tinyedge.js": source}) as page:
        got = page.evaluate(
            """async () => {
              const {load} = await import("/tinyedge.js"), model = await load("/");
              const idOf = (promise) => promise.then(() => "", (error) => error.id);
              const inputs = await model.example();
              const out = await model.run(inputs), report = await model.verify();
              return {
                dtypes: model.inputs.map(({dtype}) => dtype),
                arrays: model.inputs.map(({name}) => out[`${name} codes`].data.constructor.name),
                floats: await idOf(model.run({...inputs, bfloat16: new Float32Array(15)})),
                range: await idOf(model.run({...inputs, int4: Array(15).fill(0.5)})),
                numbers: Array.from(
                  (await model.run({...inputs, bfloat16: Array(15).fill(0x3fc0)}))
                    ["bfloat16 numbers"].data,
                ),
                passed: report.passed,
                outputs: report.cases[0].outputs.length,
              };
            }"""
        )
    assert got["dtypes"] == [f"{dtype.storage_type}:{dtype.name}" for dtype in dt.STORED]
    arrays = {"uint16": "Uint16Array", "uint8": "Uint8Array", "int8": "Int8Array"}
    assert got["arrays"] == [arrays[dtype.storage_type] for dtype in dt.STORED]
    assert (got["floats"], got["range"]) == ("run.dtype", "run.range")
    assert got["numbers"] == [1.5] * 15
    assert got["passed"] and got["outputs"] == len(program.outputs)
