"""What mkdocs calls while it builds the site: which files there are, and what the API's pages say.

A page lies in the site where it lies in the repository, and so do the other files that pages link
to: relative links are right in both without being changed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("*.md", "docs/*.md", "examples/**/*.md", "tinyedge/**/*.md", "web/*.md")
STYLE = Path("docs/site.css")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def pages() -> list[Path]:
    return [page for pattern in PAGES for page in sorted(ROOT.glob(pattern))]


def linked(page: Path) -> list[Path]:
    """The files that a page links to."""
    targets = (
        (page.parent / link).resolve() for link in LINK.findall(page.read_text(encoding="utf-8"))
    )
    return [target for target in targets if target.is_file() and ROOT in target.parents]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The repository's pages and what they link to, in place of the files of docs_dir."""
    for file in files.documentation_pages() + files.media_files():
        if file.src_dir == config.docs_dir:
            files.remove(file)
    places = {ROOT / STYLE: None}
    places |= {place: None for page in pages() for place in (page, *linked(page))}
    for place in places:
        name = place.relative_to(ROOT).as_posix()
        files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


class FieldComments(griffe.Extension):
    """The comments of a dataclass's fields become a section of its docstring.

    A field's comment stands behind it, or in lines of its own above it.
    """

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        if not any(each.callable_path == "dataclasses.dataclass" for each in cls.decorators):
            return
        fields = [each for each in cls.members.values() if each.is_attribute and each.annotation]
        told = {each.name: comment_of(each) for each in fields}
        lines = [f"    {name}: {comment}" for name, comment in told.items() if comment]
        if cls.docstring and lines:
            cls.docstring.value += "\n".join(["", "", "Attributes:", *lines])


def comment_of(field: griffe.Attribute) -> str:
    """What the comment of a field says, as a sentence; "" if there is none."""
    lines = field.lines_collection[field.filepath]
    _, _, behind = lines[field.endlineno - 1].partition("  # ")
    above: list[str] = []
    for line in reversed(lines[: field.lineno - 1]):
        if not line.lstrip().startswith("# "):
            break
        above.insert(0, line.strip()[2:])
    said = behind or " ".join(above)
    return said[:1].upper() + said[1:].rstrip(".") + "." if said else ""
