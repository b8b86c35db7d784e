"""Names of classes in a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tinyedge
from tests.export.test_labels import IDS, MAP, NAMES, SCORES, export
from tests.runtimes.test_web_files import _check_types
from tinyedge.core.errors import RunError
from tinyedge.export.bundle.reading import read
from tinyedge.export.verify.browser import Browser
from tinyedge.labels import top


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
    _check_types(
        bundle,
        (bundle / "tinyedge.d.ts").read_text(),
        'import {load} from "./tinyedge.js";\n'
        "const x = new Float32Array(6);\n"
        'const {scores, other} = await (await load("./")).run({scores: x, other: x});\n'
        "const label: string = scores.top(1)[0].label;\n"
        "// @ts-expect-error it has no names\n"
        "other.top;\n"
        "console.log(label);\n",
    )


@pytest.mark.browser
def test_counts_and_rows_that_are_none(browser: Browser, tmp_path: Path) -> None:
    bundle = export(
        tmp_path,
        {"scores": NAMES, "x[1]": NAMES, "ids": NAMES},
        "webgpu",
        scores=SCORES,
        x=MAP,
        ids=IDS,
    )
    given = {n: v.reshape(-1).tolist() for n, v in {"scores": SCORES, "x": MAP, "ids": IDS}.items()}
    with browser.page(bundle, start="") as page:
        found = page.evaluate(
            """async (given) => {
              const m = await (await import("./tinyedge.js")).load("./");
              const out = await m.run(given), tried = [];
              const counts = [0, -1, 1.5, "2", true, null, NaN, Infinity];
              for (const [name, rows] of [["scores", 2], ["x", 12], ["ids", 4]])
                for (const [count, row] of [
                  ...counts.map((count) => [count, 0]),
                  ...[-1, rows, 0.5, "1", null].map((row) => [1, row]),
                ])
                  try {
                    tried.push([name, String([count, row]), out[name].top(count, row)]);
                  } catch ({id}) {
                    if (id !== "run.labels") tried.push([name, id]);
                  }
              const last = [out.scores.top(9, 1), out.x.top(1, 11), out.ids.top(1, 3)];
              return [tried, last.map(({length}) => length)];
            }""",
            given,
        )
    assert found == [[], [3, 1, 1]]


@pytest.mark.browser
@pytest.mark.parametrize(
    "labels",
    [
        *("7", '["x"]', '[{"axis":0,"output":"scores"}]', "[[{}]]"),
        '[{"axis":1,"names":{},"output":"scores"}]',
    ],
)
def test_labels_that_no_export_writes(browser: Browser, tmp_path: Path, labels: str) -> None:
    """What lies in a manifest's options is for tools: a run does not fail for it."""
    bundle = export(tmp_path, {"scores": NAMES}, "webgpu", scores=SCORES)
    text = (bundle / "manifest.json").read_text("ascii")
    before, found, after = re.split(r'("labels":\[\{.*?\}\])', text)
    assert "output" in found
    (bundle / "manifest.json").write_text(f'{before}"labels":{labels}{after}', "ascii")
    given = SCORES.reshape(-1).tolist()
    with browser.page(bundle, start="") as page:
        out = page.evaluate(
            """async (scores) => {
              const m = await (await import("./tinyedge.js")).load("./");
              const out = await m.run({scores});
              return [[...out.scores.data], "top" in out.scores];
            }""",
            given,
        )
        assert out == [given, False]
        page.get_by_role("button", name="Run").click()
        page.get_by_text("10 runs").wait_for()
        assert page.locator("#error").is_hidden()
    with pytest.raises(RunError):
        top(read(bundle).program, {"scores": SCORES}, "scores")
