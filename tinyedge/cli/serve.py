"""`tinyedge serve`."""

from __future__ import annotations

from pathlib import Path

import click

from tinyedge.core.errors import InputError


@click.command("serve")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="A loopback address.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Default: any free port.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in the default browser.")
def command(bundle: Path, host: str, port: int, open_page: bool) -> int:
    """Serve the page that runs BUNDLE in the browser, on this machine only."""
    from tinyedge.export.bundle.reading import read_manifest
    from tinyedge.serve import serve

    target = read_manifest(bundle)["target"]
    if target != "webgpu":
        raise InputError(
            f"bundle {str(bundle)!r}",
            f"it is for {target}, which browsers do not run, and holds no page",
            id="serve.target",
            supported="bundles for webgpu",
            next="export with --target webgpu; `tinyedge run` runs this one",
        )
    serve(bundle, host, port, ready=click.launch if open_page else None)
    return 0
