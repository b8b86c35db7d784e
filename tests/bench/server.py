"""The loopback server of the benchmark: both sides' files, and a record of what was fetched."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.bench.line import Line, Paced
from tinyedge.serve import CONTENT_POLICY, MIME_TYPES, WASM_POLICY

_TYPES = {**MIME_TYPES, ".mjs": MIME_TYPES[".js"]}

# onnxruntime-web, LiteRT.js and a backend of TensorFlow.js are WebAssembly, which a strict policy
# forbids, and so are our bundles' programs for it: only their pages may run it.
WASM = ("peer", "wasm", "litert", "fallback", "tfjs", "camera-peer")
# What a page may ask for before any script runs.
HINT = re.compile(r'<link rel="(?:modulepreload|preload)" href="[^"]+"[^>]*>')


@dataclass
class Said:
    """What a page posts to /said. It is answered, and so goes on, once `heard` is set."""

    words: dict[str, Any]
    heard: threading.Event = field(default_factory=threading.Event)


@dataclass
class Site:
    """What is served, from folders by the path's first part and from memory; what was fetched.

    hints: elements of a page's head, as HINT, by the page's name.
    """

    folders: dict[str, Path] = field(default_factory=dict)
    files: dict[str, bytes | Path] = field(default_factory=dict)
    hints: dict[str, list[str]] = field(default_factory=dict)
    fetched: dict[str, int] = field(default_factory=dict)
    said: SimpleQueue[Said] = field(default_factory=SimpleQueue)

    def read(self, path: str) -> bytes | None:
        """The content at a path without its leading slash."""
        if path in self.files:
            content = self.files[path]
            return content.read_bytes() if isinstance(content, Path) else content
        name, _, rest = path.partition("/")
        if name not in self.folders:
            return None
        root = self.folders[name].resolve()
        file = (root / rest).resolve()
        if not file.is_relative_to(root) or not file.is_file():
            return None
        return file.read_bytes()


class Server:
    """`with Server(site) as server: server.url`. The page `NAME.html` runs pages/NAME.js.

    `NAME.html?felt` runs pages/felt.js before it. line: between the pages and the server.
    """

    def __init__(self, site: Site, line: Line | None = None) -> None:
        self.site = site
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(site, line))
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/"
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()


def _handler(site: Site, line: Line | None) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            if line is not None:
                self.wfile = Paced(self.wfile, line)

        def parse_request(self) -> bool:
            good = super().parse_request()
            if good and isinstance(self.wfile, Paced) and line is not None:
                size = len(self.raw_requestline) + len(str(self.headers))
                line.asked(size + int(self.headers.get("Content-Length", 0)))
                self.wfile.begin()
            return good

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path != "/said":
                self.send_error(404)
                return
            said = Said(json.loads(content))
            site.said.put(said)
            said.heard.wait()
            self.send_response(204)
            self.end_headers()

        def do_GET(self) -> None:
            address = urlsplit(self.path)
            path = unquote(address.path).lstrip("/")
            policy = CONTENT_POLICY
            if path.endswith(".html"):
                name = path.removesuffix(".html")
                policy = WASM_POLICY if name in WASM else CONTENT_POLICY
                scripts = ["felt", name] if address.query == "felt" else [name]
                head = f'<!doctype html><title>{name}</title><link rel="icon" href="data:,">'
                head += "".join(site.hints.get(name, ()))
                for script in scripts:
                    head += f'<script type="module" src="/pages/{script}.js"></script>'
                data: bytes | None = head.encode()
            else:
                data = site.read(path)
            if data is None:
                self.send_error(404)
                return
            site.fetched[path] = len(data)
            self.send_response(200)
            kind = _TYPES.get(Path(path).suffix, "application/octet-stream")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Content-Security-Policy", policy)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            try:
                self.wfile.write(data)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
