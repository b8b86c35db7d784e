"""The loopback server: what it serves, to whom, under which policy."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("flask")

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
