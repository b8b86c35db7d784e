"""What the documentation says exists: files, commands, options, error ids, exit codes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from tinyedge import cli

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("examples/**/*.md"),
        *ROOT.glob("tinyedge/**/*.md"),
        *ROOT.glob("web/*.md"),
    ]
)
CODE = re.compile(r"`[^`\n]*`")  # within a line, where nothing is a link
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
COMMANDS = (
    re.compile(r"^ {4}(tinyedge [a-z](?:\\\n|[^`#&\n])*)", re.MULTILINE),
    re.compile(r"(?:`|&& )(tinyedge [a-z][^`#&]*)"),
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        assert "://" not in link, link
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_exist(page: Path) -> None:
    context = click.Context(cli.tinyedge)
    said = page.read_text(encoding="utf-8")
    for text in (text for pattern in COMMANDS for text in pattern.findall(said)):
        words = shlex.split(text)
        command = cli.tinyedge.get_command(context, words[1])
        assert command is not None, text
        options = {name for parameter in command.params for name in parameter.opts}
        for word in words[2:]:
            if word.startswith("-"):
                assert word in options, text


def test_exit_codes() -> None:
    """The README's table is the help's."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| (\d+) \| (.+) \|$", readme, re.MULTILINE))
    assert cli.tinyedge.help is not None
    listed = dict(re.findall(r"^ *(\d+) +(.+)$", cli.tinyedge.help, re.MULTILINE))
    assert table == listed
    codes = (cli.OK, cli.WRONG, cli.USAGE, cli.NO_DEVICE, cli.BUG, cli.INTERRUPTED)
    assert [int(code) for code in table] == list(codes)


def test_error_ids_of_the_page() -> None:
    """Every id in the page's table is one that the runtime throws, and none is left out."""
    thrown = set()
    for module in (ROOT / "web" / "src" / "runtime").glob("*.js"):
        source = module.read_text(encoding="utf-8")
        thrown |= set(re.findall(r'"((?:device|load|run)\.[a-z0-9]+)"', source))
    told = (ROOT / "docs" / "page.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`((?:device|load|run)\.[a-z0-9]+)`", told))
    assert listed - thrown == set()
    assert thrown - listed == set()
