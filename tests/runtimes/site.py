"""A web server whose answers a test may change, and scripts of the page that it serves."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from tests.runtimes.test_browser_life import SETUP

FAULTS = """
const errorOf = async (work) => {
  try { await work(); return {id: "none"}; }
  catch ({id, name, message, subject, because, next}) {
    return {id: id ?? name, text: message, subject, because, next};
  }
};
const openDevice = async () => (await navigator.gpu.requestAdapter()).requestDevice();
const {STORAGE, COPY_SRC, COPY_DST, MAP_WRITE} = GPUBufferUsage;
const buffer = (device, usage = STORAGE | COPY_SRC | COPY_DST, more = {}) =>
  device.createBuffer({label: "a caller's", size: 256, usage, ...more});
const x = new Float32Array(64).fill(1);
"""

# Waits between requests take a fiftieth of their time; what was asked for is in `waits`.
HURRY = """
const waits = [], later = globalThis.setTimeout;
globalThis.setTimeout = (work, ms) => {
  waits.push(ms);
  return later(work, ms / 50);
};
"""


def evaluate(page: Any, body: str) -> Any:
    return page.evaluate("async () => {" + SETUP + FAULTS + body + "}")


@dataclass
class Site:
    """A web server of a folder whose answers a test may change: caching, statuses, a login, cuts.

    statuses: name -> the status of all its answers, or those of the next ones; cuts: name -> bytes
    after which the connection of the next answers is cut, one each; ranges: whether it gives them.
    asked: the answers by name; sent: bytes of their bodies; answered: statuses.
    """

    folder: Path
    headers: dict[str, str] = field(default_factory=dict)
    statuses: dict[str, int | list[int]] = field(default_factory=dict)
    more: dict[str, str] = field(default_factory=dict)
    cuts: dict[str, list[int]] = field(default_factory=dict)
    ranges: bool = True
    query: str = ""
    missing: str = ""
    asked: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    given: list[dict[str, str]] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    url: str = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        path = self.folder / parts.path.lstrip("/")
        self.asked[path.name] += 1
        self.given.append(dict(handler.headers))
        status = self._status(path, parts.query)
        content = b""
        if parts.path == "/":
            content = b"<!doctype html><title>faults</title>"
        elif status == 200 and path.is_file():
            content = path.read_bytes()
        elif status == 200:
            content, status = self.missing.encode(), 200 if self.missing else 404
        asked = handler.headers.get("Range")
        start = int(asked[6:-1]) if asked and self.ranges and status == 200 else 0
        self.answered.append(status)
        handler.send_response(206 if start else status)
        script = {".js": "text/javascript", ".html": "text/html"}.get(path.suffix)
        handler.send_header("Content-Type", script or ("" if path.suffix else "text/html"))
        handler.send_header("Content-Length", str(len(content) - start))
        handler.send_header("Cache-Control", self.headers.get(path.suffix, "no-store"))
        if start:
            end = len(content)
            handler.send_header("Content-Range", f"bytes {start}-{end - 1}/{end}")
        for name, value in self.more.items():
            handler.send_header(name, value)
        handler.end_headers()
        cuts = self.cuts.get(path.name)
        body = content[start : start + cuts.pop(0)] if cuts else content[start:]
        self.sent[path.name] += len(body)  # before the page can have read the end of it
        with suppress(ConnectionError):  # the page has heard enough
            handler.wfile.write(body)
        if start + len(body) < len(content):
            handler.wfile.flush()
            time.sleep(1)  # what was sent is read before the end, at which a page drops the rest
            handler.close_connection = True

    def _status(self, path: Path, query: str) -> int:
        if self.query and path.parent != self.folder and query != self.query:
            return 403
        listed = self.statuses.get(path.name, 200)
        if isinstance(listed, int):
            return listed
        return listed.pop(0) if listed else 200


@contextmanager
def serving(folder: Path) -> Iterator[Site]:
    """The server of a folder, at `url`."""
    site = Site(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.answer(self)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_port}/"
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
