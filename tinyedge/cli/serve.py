"""`tinyedge serve`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("serve")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="A loopback address.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Default: any free port.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in the default browser.")
def command(bundle: Path, host: str, port: int, open_page: bool) -> int:
    """Serve the page that runs BUNDLE in the browser, on this machine only."""
    from tinyedge.export.bundle import read_manifest
    from tinyedge.serve import serve

    read_manifest(bundle)
    serve(bundle, host, port, ready=click.launch if open_page else None)
    return 0
