"""A bundle for webgpu as one HTML file, which also runs where it is opened from a disk."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable
from pathlib import Path

from tinyedge.core.errors import InputError, InternalError
from tinyedge.core.files import next_place, write_whole
from tinyedge.export.bundle.manifest import MANIFEST, decode, other_manifest
from tinyedge.export.package.web import MODULES, PAGE, page_files, web_file


def write_single_file(bundle: str | Path, out: str | Path) -> Path:
    """Write the page of a bundle, with all that it fetches in it, and return its path.

    The file takes four bytes for three of the bundle. It is whole or not there: an old one stays
    until then. Raises InputError if it cannot be written.
    """
    bundle, out = Path(bundle), Path(out)
    text = _page(bundle)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, text.encode("utf-8"))
    except OSError as error:
        raise InputError(
            f"page {str(out)!r}",
            f"it cannot be written: {error.strerror or error}",
            id="export.write",
            next=next_place(error),
        ) from error
    return out


def check_single_file(out: str | Path) -> None:
    """Raise InputError if `out` is something else than a page of this kind, or cannot be read."""
    out = Path(out)
    try:
        if not out.exists():
            return
        text = out.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(
            f"page {str(out)!r}",
            f"what is there cannot be read: {error.strerror or error}",
            id="export.write",
            next="choose another place",
        ) from error
    if f'data-file="{MANIFEST}"' not in text:
        raise InputError(
            f"page {str(out)!r}",
            "a file of yours is there, and no page of a model",
            id="export.exists",
            next="choose another place, or add --force",
        )


def _page(bundle: Path) -> str:
    text = (bundle / "index.html").read_text(encoding="utf-8")
    style = (bundle / "demo.css").read_text(encoding="utf-8")
    demo = "".join(_joined((bundle / name).read_text(encoding="utf-8")) for name in PAGE)
    demo = _replaced(
        demo,
        r'import \{load\} from "\./tinyedge\.js";',
        "const load = (folder, options) => tinyedge.load(options);",
    )
    demo = _replaced(demo, r'new URL\("\./", import\.meta\.url\)', "new URL(location.href)")
    text = re.sub(r"<link rel=\"(modulepreload|preload)\"[^>]*>\n", "", text)
    text = _replaced(text, r'<link rel="stylesheet"[^>]*>', f"<style>\n{style}</style>")
    script = web_file("src/single.js").read_text(encoding="utf-8")
    text = _replaced(text, r'<script type="module"[^>]*></script>\n', "")
    held = "".join(_held(bundle, name) for name in _names(bundle))
    scripts = f'<script>\n{script}</script>\n{held}<script type="module">\n{demo}</script>\n'
    return _replaced(text, r"</body>", f"{scripts}</body>")


def _joined(module: str) -> str:
    """A module of the page as a part of one: names are unique across them."""
    module = re.sub(r'^import [^;]*"\./demo_[a-z]+\.js";\n', "", module, flags=re.MULTILINE)
    return re.sub(r"^export (?=async|class|const|function)", "", module, flags=re.MULTILINE)


def _replaced(text: str, pattern: str, new: str) -> str:
    """With the one place of a pattern replaced by a text as it is."""
    result, count = re.subn(pattern, lambda _: new, text)
    if count != 1:
        raise InternalError(
            "the page of a bundle",
            f"it has {count} places of {pattern!r}",
            id="export.single",
            next="export the bundle again with this version",
        )
    return result


def _names(bundle: Path) -> Iterable[str]:
    """The files that the page may ask for."""
    yield from ("tinyedge.js", *MODULES)
    files: dict[str, None] = {}
    for manifest in (MANIFEST, other_manifest(0)):
        if (bundle / manifest).is_file():
            yield manifest
            records = decode((bundle / manifest).read_bytes())["files"]
            files.update(dict.fromkeys(record["name"] for record in records))
    yield from page_files(files)


def _held(bundle: Path, name: str) -> str:
    content = (bundle / name).read_bytes()
    if name.endswith(".js"):
        # A module there has no neighbors: it asks for their addresses.
        addressed = r'import(tinyedge.address("\1"))'
        content = re.sub(r'import\("\./([a-z]+\.js)"\)', addressed, content.decode()).encode()
    text = base64.b64encode(content).decode("ascii")
    return f'<script type="text/plain" data-file="{html.escape(name)}">{text}</script>\n'
