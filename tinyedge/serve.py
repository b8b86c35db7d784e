"""A small loopback web server for looking at a bundle: `tinyedge serve model.tinyedge`.

It serves one folder (and, for tests, pages held in memory) under the strictest content policy that
the runtime needs, so whatever works here works on a site with a strict policy. It is not meant for
the open network: it binds loopback only, answers only requests addressed to loopback, and reads
nothing outside the folder.
"""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tinyedge.core.errors import InputError

if TYPE_CHECKING:
    from flask import Flask

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

# What a bundle with a program for WebAssembly needs beside.
WASM_POLICY = CONTENT_POLICY.replace("script-src 'self'", "script-src 'self' 'wasm-unsafe-eval'")

# Of every answer. Pages elsewhere can neither show a bundle's page nor take its files: a browser
# sends their requests to loopback too.
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-cache",
}

CONNECTIONS = 64  # at a time; more are closed at once
IDLE_SECONDS = 10.0  # in which a client must take or give something
REQUEST_SECONDS = 10.0  # for a whole request
ANSWER_SECONDS = 120.0  # for a whole answer, a file of at most 32 MiB

MIME_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".ts": "text/plain; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".wgsl": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".svg": "image/svg+xml",
}


def application(
    folder: str | Path,
    pages: Mapping[str, tuple[str, str]] | None = None,
    name: str = "",
) -> Flask:
    """The Flask application that serves `folder`; `/` is its index.html.

    pages: path (no leading slash) -> (MIME type, text), served from memory before the folder is
    looked at. name: the folder is served at `/name/` instead, and `/` leads there.
    """
    from flask import Flask, Response, abort, redirect, request, send_file

    root = Path(folder).resolve()
    prefix = f"/{name}" if name else ""
    extra = dict(pages or {})
    headers = dict(HEADERS)
    if any(root.glob("kernels*.wasm")):
        headers["Content-Security-Policy"] = WASM_POLICY
        # Its page is isolated then, and has threads.
        headers["Cross-Origin-Embedder-Policy"] = "require-corp"
    app = Flask("tinyedge.serve", static_folder=None)

    @app.before_request
    def only_loopback_names() -> None:
        # A page elsewhere that rebinds its own name to 127.0.0.1 arrives with that name in Host.
        name = request.host.rsplit(":", 1)[0] if not request.host.endswith("]") else request.host
        if not is_loopback(name.strip("[]")):
            abort(403)

    @app.after_request
    def policy(response: Response) -> Response:
        response.headers.update(headers)
        return response

    def file(place: str = "index.html") -> Response:
        if place in extra:
            mime, text = extra[place]
            return Response(text, content_type=mime)
        try:
            path = (root / place).resolve()
            if path.is_dir():
                path = path / "index.html"
            allowed = path.is_relative_to(root) and path.is_file()
        except (OSError, ValueError):
            allowed = False
        if not allowed:
            abort(404)
        mime = MIME_TYPES.get(path.suffix, "application/octet-stream")
        # Read at once: werkzeug does not close a file whose client is gone before its answer ends.
        found = path.stat()
        response: Response = send_file(
            BytesIO(path.read_bytes()),
            mimetype=mime,
            conditional=True,
            etag=f"{found.st_mtime_ns:x}-{found.st_size:x}",
            last_modified=found.st_mtime,
        )
        response.headers["Content-Type"] = mime
        return response

    app.add_url_rule(f"{prefix}/", "index", file)
    app.add_url_rule(f"{prefix}/<path:place>", "file", file)
    if name:
        app.add_url_rule("/", "root", lambda: redirect(f"/{quote(name)}/"))
    return app


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Server:
    """A running server in a thread: `with Server(folder) as server: server.url`."""

    def __init__(
        self,
        folder: str | Path,
        host: str = "127.0.0.1",
        port: int = 0,
        pages: Mapping[str, tuple[str, str]] | None = None,
        name: str = "",
    ) -> None:
        try:
            import werkzeug.serving
        except ImportError as error:
            raise InputError(
                "tinyedge serve",
                "the web server needs the package flask, which is not installed",
                id="serve.package",
                next="pip install '.[serve]' in a checkout of tinyedge",
            ) from error

        if not is_loopback(host):
            raise InputError(
                f"host {host!r}",
                "the server is for this machine only and binds no address that others can reach",
                id="serve.host",
                supported="127.0.0.1, ::1, localhost",
                next="copy the bundle to a real web server: it is a folder of static files",
            )
        app = application(folder, pages, name)
        with _listen(host, port) as listening:
            port = listening.getsockname()[1]
            self._server = _patient(werkzeug.serving)(host, port, app, listening.fileno())
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{port}/" + (f"{quote(name)}/" if name else "")
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def connections(self) -> int:
        """How many connections are held now."""
        return int(self._server.held())

    def wait(self) -> None:
        """Serve until interrupted."""
        self._thread.join()


def _patient(serving: Any) -> Any:
    """A class of server, of the module werkzeug.serving, that is patient with clients to a limit.

    It holds so many connections at a time, and cuts those whose request or answer takes too long.
    """

    class Handler(serving.WSGIRequestHandler):  # type: ignore[misc]
        timeout = IDLE_SECONDS

        def log_request(self, code: Any = "-", size: Any = "-") -> None:
            pass

        def log_error(self, format: str, *args: Any) -> None:
            pass

        def version_string(self) -> str:
            return "tinyedge"

        def run_wsgi(self) -> None:
            self.server.allow(self.connection, ANSWER_SECONDS)
            super().run_wsgi()

    class PatientServer(serving.ThreadedWSGIServer):  # type: ignore[misc]
        def __init__(self, host: str, port: int, app: Any, descriptor: int) -> None:
            super().__init__(host, port, app, Handler, fd=descriptor)
            self._ends: dict[socket.socket, float] = {}
            self._lock = threading.Lock()

        def allow(self, connection: socket.socket, seconds: float) -> None:
            """Let a connection go on for so long from now."""
            with self._lock:
                self._ends[connection] = time.monotonic() + seconds

        def held(self) -> int:
            with self._lock:
                return len(self._ends)

        def process_request(self, request: Any, client_address: Any) -> None:
            if self.held() >= CONNECTIONS:
                self.shutdown_request(request)
                return
            self.allow(request, REQUEST_SECONDS)
            super().process_request(request, client_address)

        def shutdown_request(self, request: Any) -> None:
            with self._lock:
                self._ends.pop(request, None)
            super().shutdown_request(request)

        def service_actions(self) -> None:
            """Called twice a second: cut what has taken too long."""
            super().service_actions()
            now = time.monotonic()
            with self._lock:
                late = [connection for connection, end in self._ends.items() if end < now]
            for connection in late:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    return PatientServer


def serve(
    bundle_path: str | Path,
    host: str = "127.0.0.1",
    port: int = 0,
    ready: Callable[[str], object] | None = None,
) -> None:
    """Serve a bundle on loopback, print the address and wait until interrupted.

    Port 0 takes a free one. ready: called with the address once it answers.
    Raises InputError when the folder is no bundle, the host is not loopback or the port is taken.
    """
    folder = Path(bundle_path)
    if not (folder / "manifest.json").is_file():
        raise InputError(
            str(bundle_path),
            "there is no manifest.json in it, so it is not a bundle",
            id="bundle.missing",
            next="tinyedge export model.onnx --target webgpu writes one",
        )
    # The page takes the model's name from its address.
    name = folder.resolve().name
    plain = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_. -]*", name)
    with Server(folder, host, port, name=name if plain else "") as server:
        try:
            print(f"serving {folder} at {server.url} (interrupt to stop)", flush=True)
            if not (folder / "index.html").is_file():
                print("it holds no page: its index.html is gone", flush=True)
            if ready is not None:
                ready(server.url)
            server.wait()
        except KeyboardInterrupt:
            pass


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except (OSError, OverflowError) as error:
        listening.close()
        raise _cannot_listen(host, port, error) from error
    return listening


def _cannot_listen(host: str, port: int, error: Exception) -> InputError:
    number = getattr(error, "errno", None)
    if number == errno.EACCES:
        cause = "the system does not let this user listen there"
    elif number == errno.EADDRINUSE:
        cause = "another program already listens there"
    else:
        cause = str(error)
    return InputError(
        f"{host} port {port}",
        cause,
        id="serve.port",
        next="leave --port out to take a free port, or name another one",
    )
