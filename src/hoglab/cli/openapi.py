"""``hoglab openapi``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import orjson
import typer

from hoglab.cli.options import load_settings


def openapi(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write it to this file instead.", dir_okay=False)
    ] = None,
) -> None:
    """Print the OpenAPI document of the API, to generate clients from.

    It is the one that a running server has at /api/schema/; no server and no data directory are needed.
    """
    from hoglab.app import Hoglab

    with tempfile.TemporaryDirectory(prefix="hoglab-openapi-") as folder:
        hoglab = Hoglab.open(load_settings(data=Path(folder) / "data"))
        hoglab.start()
        try:
            text = orjson.dumps(hoglab.http.document.value, option=orjson.OPT_INDENT_2) + b"\n"
        finally:
            hoglab.stop()
    if output is None:
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
    else:
        output.write_bytes(text)
