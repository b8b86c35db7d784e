"""The documentation site builds, fetches nothing from elsewhere, and says what the pages say."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import tinyedge
from tests.test_docs import PAGES, ROOT, name_of

# Pages that are made of docstrings.
MADE = ("docs/api.md", "docs/target_api.md")
STRUCTURE = ("h1", "h2", "h3", "ul", "ol", "li", "table", "tr", "td", "th", "pre", "em", "strong")
RAISED = ["ModelError", "UnsupportedOp", "InputError", "DeviceError"]  # by export_onnx
# Attributes by which a page fetches something when it is opened, by element.
FETCHED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with its links and their anchors checked: a wrong one fails the build."""
    out = tmp_path_factory.mktemp("site")
    command = (sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", out)
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert (done.returncode, done.stdout.decode()) == (0, "")
    return out


class _Reader(HTMLParser):
    """The structure and the letters of the page's own part, and what the page fetches."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.read: list[str] = []
        self.fetched: list[str] = []
        self._outside = "<article" in text
        self._mark = False  # the sign behind a heading that links to it
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag in FETCHED and given.get("rel") != "canonical":
            self.fetched.append(given.get(FETCHED[tag]) or "")
        if tag == "article":
            self._outside = False
        self._mark = tag == "a" and given.get("class") == "headerlink"
        if tag in STRUCTURE and not self._outside:
            self.read.append(f"<{tag}>")

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self._outside = True
        self._mark = False
        if tag in STRUCTURE and not self._outside:
            self.read.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if not self._outside and not self._mark:
            self.read += "".join(data.split())


def built(site: Path, page: Path) -> Path:
    name = "index" if page.stem == "README" else page.stem
    return site / page.relative_to(ROOT).with_name(f"{name}.html")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_page_says_the_same(site: Path, page: Path) -> None:
    """The site's Markdown and the repository's differ, as in how nested lists are indented."""
    text = built(site, page).read_text(encoding="utf-8")
    if name_of(page) in MADE:
        assert "<p>:::" not in text
        return
    markdown = MarkdownIt("commonmark").enable("table")
    expected = _Reader(markdown.render(page.read_text(encoding="utf-8"))).read
    assert "".join(_Reader(text).read) == "".join(expected)


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        for address in _Reader(page.read_text(encoding="utf-8")).fetched:
            assert not re.match(r"[a-z]+:|//", address), (page, address)
    for style in site.rglob("*.css"):
        for address in re.findall(r"url\(([^)]*)\)", style.read_text(encoding="utf-8")):
            assert re.match(r"[\"']?(data:|\.)", address), (style, address)


def test_public_names_are_explained(site: Path) -> None:
    text = (site / "docs" / "api.html").read_text(encoding="utf-8")
    ids = {re.sub(r".*\.", "", found) for found in re.findall(r'<h3 id="([^"]+)"', text)}
    assert set(tinyedge.__all__) - ids == set()
    members = set(re.findall(r'<h4 id="[\w.]+\.Tensor\.(\w+)"', text))
    assert {name for name in dir(tinyedge.Tensor) if not name.startswith("_")} - members == set()
    explained = re.findall(r"^ {8}(\w+): ", tinyedge.export_onnx.__doc__ or "", re.MULTILINE)
    assert list(inspect.signature(tinyedge.export_onnx).parameters) == explained[: -len(RAISED)]
    assert explained[-len(RAISED) :] == RAISED
