"""The loopback server: what it serves, to whom, under which policy."""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("flask")

from tinyedge import serve as serving
from tinyedge.core.errors import InputError
from tinyedge.serve import CONTENT_POLICY, Server, application, serve


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "bundle"
    (root / "inside").mkdir(parents=True)
    for name in ("index.html", "tinyedge.js", "page.css", "kernels.wgsl", "inside/index.html"):
        (root / name).write_text(name)
    (root / "weights-00000.bin").write_bytes(bytes(range(256)))
    (tmp_path / "secret").write_text("secret")
    (root / "link").symlink_to(tmp_path / "secret")
    return root


@pytest.mark.parametrize(
    ("path", "mime"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/inside/", "text/html; charset=utf-8"),
        ("/tinyedge.js", "text/javascript; charset=utf-8"),
        ("/page.css", "text/css; charset=utf-8"),
        ("/kernels.wgsl", "text/plain; charset=utf-8"),
        ("/weights-00000.bin", "application/octet-stream"),
    ],
)
def test_types_and_policy(folder: Path, path: str, mime: str) -> None:
    with application(folder).test_client().get(path) as response:
        assert response.status_code == 200
        assert response.headers["Content-Type"] == mime
        assert response.headers["Content-Security-Policy"] == CONTENT_POLICY
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert response.headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize(("path", "host"), [("/nothing", "localhost"), ("/", "example.com")])
def test_refusals_have_the_policy_too(folder: Path, path: str, host: str) -> None:
    with application(folder).test_client().get(path, headers={"Host": host}) as response:
        assert response.status_code in (403, 404)
        assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]
        assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"


@pytest.mark.parametrize(
    "path",
    [
        "/../secret",
        "/%2e%2e/secret",
        "/inside/../../secret",
        "/link",
        "/nothing",
        "/a%00b",
        "/%2fetc/passwd",
        "/..%2fsecret",
        "/..%5csecret",
        "/inside/%2e%2e%2f%2e%2e/secret",
        "/....//secret",
        "/./../secret",
        "/" + "%2e%2e/" * 40 + "etc/passwd",
        "/secret%0d%0aX-Injected: 1",
        "/" + "a" * 5000,
    ],
)
def test_nothing_outside_the_folder(folder: Path, path: str) -> None:
    with application(folder).test_client().get(path) as response:
        assert response.status_code in (404, 308)
        assert b"secret" not in response.data


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:80", 200),
        ("localhost", 200),
        ("[::1]:8000", 200),
        ("example.com", 403),
        ("127.0.0.1.example.com", 403),
    ],
)
def test_only_names_of_this_machine(folder: Path, host: str, status: int) -> None:
    with application(folder).test_client().get("/", headers={"Host": host}) as response:
        assert response.status_code == status


def test_a_real_request(folder: Path) -> None:
    with Server(folder) as server:
        assert server.url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(server.url + "weights-00000.bin") as response:
            assert response.read() == bytes(range(256))
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(server.url + "nothing")
        refused.value.close()


def test_under_a_name(folder: Path) -> None:
    """`tinyedge serve` serves a bundle under its name, which the page shows."""
    client = application(folder, name="a model.tinyedge").test_client()
    with client.get("/") as response:
        assert response.status_code == 302
        assert response.headers["Location"] == "/a%20model.tinyedge/"
    with client.get("/a%20model.tinyedge/") as response:
        assert response.data == b"index.html"
    with client.get("/a%20model.tinyedge/tinyedge.js") as response:
        assert response.data == b"tinyedge.js"
    for path in ("/tinyedge.js", "/a%20model.tinyedge/../../secret", "/a%20model.tinyedge/link"):
        with client.get(path) as response:
            assert response.status_code == 404
    with Server(folder, name="a model.tinyedge") as server:
        assert server.url.endswith("/a%20model.tinyedge/")
        with urllib.request.urlopen(server.url + "page.css") as response:
            assert response.read() == b"page.css"


def test_a_taken_port(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="another program") as raised:
            Server(folder, port=taken.getsockname()[1])
    assert raised.value.id == "serve.port"


def test_only_loopback(folder: Path) -> None:
    with pytest.raises(InputError) as raised:
        Server(folder, host="0.0.0.0")
    assert raised.value.id == "serve.host"


def test_not_a_bundle(folder: Path) -> None:
    with pytest.raises(InputError) as raised:
        serve(folder)
    assert raised.value.id == "bundle.missing"


def ends(client: socket.socket) -> float:
    """Seconds until the server ends a connection."""
    begin = time.monotonic()
    client.settimeout(20)
    while True:
        try:
            if not client.recv(1 << 16):
                break
        except ConnectionError:
            break
    return time.monotonic() - begin


def connect(server: Server) -> socket.socket:
    """A connection whose receiving buffer is small, whatever the system grows one to."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    client.connect(("127.0.0.1", int(server.url.rstrip("/").rsplit(":", 1)[1])))
    return client


def until_held(server: Server, count: int) -> None:
    """Wait until the server holds so many connections."""
    end = time.monotonic() + 20
    while server.connections != count:
        assert time.monotonic() < end, f"{server.connections} connections are held"
        time.sleep(0.05)


def test_slow_clients_are_cut(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that says nothing, one that says a letter now and then, one that takes no answer."""
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 1.5)
    monkeypatch.setattr(serving, "ANSWER_SECONDS", 1.5)
    (folder / "weights-00001.bin").write_bytes(bytes(32 << 20))
    with Server(folder) as server, connect(server) as silent, connect(server) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        with connect(server) as deaf:
            deaf.sendall(b"GET /weights-00001.bin HTTP/1.1\r\nHost: localhost\r\n\r\n")
            begin = time.monotonic()
            try:
                while time.monotonic() - begin < 10:
                    slow.sendall(b"a")
                    time.sleep(0.2)
            except ConnectionError:
                pass
            assert time.monotonic() - begin < 8
            assert ends(silent) < 8
            until_held(server, 0)
            taken = 0
            deaf.settimeout(20)
            try:
                while part := deaf.recv(1 << 20):
                    taken += len(part)
            except ConnectionError:
                pass
            assert taken < 32 << 20
        with urllib.request.urlopen(server.url + "page.css") as response:
            assert response.read() == b"page.css"


def test_more_connections_than_are_held(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those above the limit are closed at once; when others end there is room again."""
    monkeypatch.setattr(serving, "CONNECTIONS", 4)
    with Server(folder) as server:
        held = [connect(server) for _ in range(4)]
        until_held(server, 4)
        with connect(server) as more:
            assert ends(more) < 3
        for client in held:
            client.close()
        until_held(server, 0)
        with urllib.request.urlopen(server.url + "page.css") as response:
            assert response.read() == b"page.css"
