"""Names of classes in a page."""

from __future__ import annotations

from pathlib import Path

import pytest

import tinyedge
from tests.export.test_labels import IDS, MAP, NAMES, SCORES, export
from tests.runtimes.test_web_files import _check_types, _compiler
from tinyedge.export.verify.browser import Browser


@pytest.mark.browser
def test_a_page_ranks_as_python_does(browser: Browser, tmp_path: Path) -> None:
    inputs = {"scores": SCORES, "x": MAP, "ids": IDS}
    labels = {"scores": NAMES, "x[1]": NAMES, "ids": NAMES}
    bundle = export(tmp_path, labels, "webgpu", **inputs)
    given = {name: value.reshape(-1).tolist() for name, value in inputs.items()}
    asked = [("scores", 2, 0), ("scores", 5, 1), ("x", 1, 6), ("x", 3, 11), ("ids", 5, 1)]
    with browser.page(bundle, start="") as page:
        found = page.evaluate(
            """async ([given, asked]) => {
              const m = await (await import("./tinyedge.js")).load("./");
              const out = await m.run(given), kept = await m.run(given, {keep: true});
              if (Object.keys(out.scores).includes("top") || "top" in kept.scores) throw "top";
              return asked.map(([name, count, row]) => out[name].top(count, row));
            }""",
            [given, asked],
        )
    with tinyedge.load(export(tmp_path / "cpu", labels, **inputs)) as m:
        out = m.run(inputs)
        for (name, count, row), ranked in zip(asked, found, strict=True):
            assert ranked == [vars(each) for each in m.top(out, name, count, row)]


def test_types(tmp_path: Path) -> None:
    bundle = export(tmp_path, {"scores": NAMES}, "webgpu", scores=SCORES, other=SCORES)
    compiler = _compiler()
    (bundle / "page.ts").write_text(
        'import {load} from "./tinyedge.js";\n'
        "const x = new Float32Array(6);\n"
        'const {scores, other} = await (await load("./")).run({scores: x, other: x});\n'
        "const label: string = scores.top(1)[0].label;\n"
        "// @ts-expect-error it has no names\n"
        "other.top;\n"
        "console.log(label);\n"
    )
    _check_types(compiler, bundle)
