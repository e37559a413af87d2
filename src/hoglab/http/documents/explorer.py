"""Trying requests in the browser: Swagger UI as it was published, served by this server alone.

The files in ``swagger_ui`` are those of the npm package swagger-ui-dist 5.35.0, unchanged. For a newer one, put the
files of the same names in their place; `tests/clients/test_explorer.py` uses them in a browser.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from hoglab.http import content_policy
from hoglab.http.documents.openapi import page

if TYPE_CHECKING:
    from starlette.types import ASGIApp

PATH = "/api/docs/try"

_POLICY = content_policy.page_policy(
    script_src="'self'", style_src="'self' 'unsafe-inline'", img_src="'self' data:", connect_src="'self'"
)
_HEADERS = {content_policy.HEADER: _POLICY, "Referrer-Policy": "no-referrer"}
"""A key typed into this page goes to this server and nowhere else."""
_KEPT = {"Cache-Control": "max-age=3600"}

_PAGE = f"""<!doctype html><html lang=en><meta charset=utf-8>
<meta name=viewport content="width=device-width, initial-scale=1">
<title>hoglab: try the API</title>
<link rel=icon href="data:,">
<link rel=stylesheet href="{PATH}/swagger-ui.css">
<div id=explorer></div>
<script src="{PATH}/swagger-ui-bundle.js"></script>
<script src="{PATH}/start.js"></script>
</html>
"""
_START = """SwaggerUIBundle({
  url: "/api/schema/",
  dom_id: "#explorer",
  deepLinking: true,
  docExpansion: "none",
  filter: true,
  tryItOutEnabled: true,
  displayRequestDuration: true,
  defaultModelsExpandDepth: -1,
  validatorUrl: null,
})
"""


def explorer_apps() -> dict[str, ASGIApp]:
    """Return the page and its files, by path."""
    return {
        PATH: page(_PAGE.encode, "text/html", _HEADERS),
        f"{PATH}/start.js": page(_START.encode, "text/javascript", _KEPT),
        f"{PATH}/swagger-ui-bundle.js": _file("swagger-ui-bundle.js", "text/javascript"),
        f"{PATH}/swagger-ui.css": _file("swagger-ui.css", "text/css"),
    }


def link(tag: str, operation_id: str) -> str:
    """Return a link to an operation in the explorer."""
    return f"{PATH}/#/{tag.replace(' ', '%20')}/{operation_id}"


def _file(name: str, media_type: str) -> ASGIApp:
    @cache
    def content() -> bytes:
        return files("hoglab.http").joinpath("swagger_ui", name).read_bytes()

    return page(content, media_type, _KEPT)
