"""The hostile bundles, refused by the JS runtime with the ids that every runtime gives."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.attacks import make
from tinyedge.export.verify.browser import Browser, runtime_source

pytestmark = pytest.mark.browser

# A page cannot tell a link from what it points to, and the server in front of it refuses pipes.
UNSEEN = ("manifest_is_a_link", "weights_are_a_link")

LOAD_ALL = """async (names) => {
  const {load} = await import("/tinyedge.js");
  const answers = {};
  for (const name of names) {
    try {
      (await load(`/${name}/`)).dispose();
      answers[name] = "";
    } catch (error) {
      answers[name] = error.id ?? String(error);
    }
  }
  return answers;
}"""


@pytest.fixture(scope="module")
def answers(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("attacks")
    make.make(folder)
    names = [name for name in json.loads(make.EXPECTED.read_text()) if name not in UNSEEN]
    pages = {"tinyedge.js": ("text/javascript", runtime_source())}
    with browser.page(folder, pages=pages) as page:
        result: dict[str, str] = page.evaluate(LOAD_ALL, names)
    return result


def test_same_error_ids(answers: dict[str, str]) -> None:
    expected: dict[str, Any] = json.loads(make.EXPECTED.read_text())
    assert len(answers) > 100
    # Images and variants are not for browsers.
    foreign = ("images", "variants")
    allowed = {
        name: ["bundle.feature", "bundle.target"] if row["needs"] in foreign else [row["id"]]
        for name, row in expected.items()
    }
    wrong = {
        name: (answer, allowed[name])
        for name, answer in answers.items()
        if answer not in allowed[name]
    }
    assert not wrong
