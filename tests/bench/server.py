"""The loopback server of the benchmark: both sides' files, and a record of what was fetched."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tinyedge.serve import CONTENT_POLICY, MIME_TYPES, WASM_POLICY

_TYPES = {**MIME_TYPES, ".mjs": MIME_TYPES[".js"]}

# onnxruntime-web, LiteRT.js and a backend of TensorFlow.js are WebAssembly, which a strict policy
# forbids, and so are our bundles' programs for it: only their pages may run it.
WASM = ("peer", "wasm", "litert", "fallback", "tfjs", "camera-peer")


@dataclass
class Site:
    """What is served, from folders by the path's first part and from memory; what was fetched."""

    folders: dict[str, Path] = field(default_factory=dict)
    files: dict[str, bytes | Path] = field(default_factory=dict)
    fetched: dict[str, int] = field(default_factory=dict)

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
    """`with Server(site) as server: server.url`. The page `NAME.html` runs pages/NAME.js."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(site))
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/"
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()


def _handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path).lstrip("/")
            policy = CONTENT_POLICY
            if path.endswith(".html"):
                name = path.removesuffix(".html")
                policy = WASM_POLICY if name in WASM else CONTENT_POLICY
                script = f'<script type="module" src="/pages/{name}.js"></script>'
                head = f'<!doctype html><title>{name}</title><link rel="icon" href="data:,">'
                data: bytes | None = (head + script).encode()
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
