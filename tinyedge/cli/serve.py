"""`tinyedge serve`."""

from __future__ import annotations

from pathlib import Path

import click

from tinyedge.cli.output import complain


@click.command("serve")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="A loopback address.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Default: any free port.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in the default browser.")
def command(bundle: Path, host: str, port: int, open_page: bool) -> int:
    """Serve the page that runs BUNDLE in the browser, on this machine only."""
    from tinyedge.export.bundle import read_manifest

    read_manifest(bundle)
    try:
        from tinyedge.serve import serve
    except ImportError as error:
        complain(f"error: {error}\n  next       pip install 'tinyedge[serve]'")
        return 1
    if open_page:
        from tinyedge.serve import Server

        with Server(bundle, host, port) as server:
            click.launch(server.url)
            server.wait()
        return 0
    serve(bundle, host, port)
    return 0
