"""Answers for visitors: the page at ``/`` and the addresses that tools and people try first."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse, Response

from hoglab import __version__
from hoglab.http import content_policy, errors
from hoglab.http.documents.explorer import PATH as EXPLORER
from hoglab.http.documents.openapi import page
from hoglab.http.requests.body import header
from hoglab.http.responses import json_response
from hoglab.patterns import anchored

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

DOCS = "/api/docs/"

_STYLE = """
:root { color-scheme: light dark; --link: light-dark(#0057b8, #7db4ff) }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 40rem; padding: 2rem 1.5rem }
a { color: var(--link) } pre { background: #8882; border-radius: 6px; overflow: auto; padding: .7rem }
"""
_PAGE = f"""<!doctype html><html lang=en><meta charset=utf-8>
<meta name=viewport content="width=device-width, initial-scale=1">
<title>hoglab</title><link rel=icon href="/favicon.ico"><style>{_STYLE}</style>
<h1>hoglab {__version__}</h1>
<p>A server for experiments, feature flags and event functions that speaks PostHog's API. It is up and running.</p>
<ul>
<li><a href="{DOCS}">The API</a>, and a page to <a href="{EXPLORER}/">try requests</a>
<li><a href="/openapi.json">The same as an OpenAPI document</a>
<li><a href="/_health">Whether everything works</a>
</ul>
<p>The API wants a personal API key. Make one on the machine of the server, in the directory that it was started in:</p>
<pre>hoglab keys create --label me --scopes '*'</pre>
<p>SDKs take the address of this server as their host, and the token of a project:</p>
<pre>hoglab projects list</pre>
</html>
"""
_QUALITY = anchored(r"[01](\.\d{0,3})?")
_HEADERS = {
    content_policy.HEADER: content_policy.page_policy(_STYLE, img_src="'self'"),
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept",
}
_ICON = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#1d4ed8"/>'
    b'<path d="M4 3v10M12 3v10M4 8h8" stroke="#fff" stroke-width="2.4" stroke-linecap="round"/></svg>'
)
_ROBOTS = b"User-agent: *\nDisallow: /\n"
_KEPT = {"Cache-Control": "max-age=86400"}


def welcome_apps(schema: ASGIApp, home: str | None = None) -> dict[str, ASGIApp]:
    """Return apps by exact path. ``schema`` serves the OpenAPI document; ``home``: where ``/`` leads browsers."""
    return {
        "/": _get(partial(_root, home)),
        "/openapi.json": schema,
        "/docs": _get(_to_docs),
        "/docs/": _get(_to_docs),
        "/favicon.ico": page(lambda: _ICON, "image/svg+xml", _KEPT),
        "/robots.txt": page(lambda: _ROBOTS, "text/plain", _KEPT),
    }


def _root(home: str | None, scope: Scope) -> Response:
    if _prefers_html(header(scope, b"accept") or ""):
        if home is not None:
            return RedirectResponse(home, 303, _HEADERS)
        return Response(_PAGE, headers=_HEADERS, media_type="text/html")
    body = {"name": "hoglab", "version": __version__, "docs": DOCS}
    return json_response(body, headers={"Vary": "Accept"})


def _prefers_html(accept: str) -> bool:
    """Return whether a client names HTML, and does not like JSON better."""
    weights = {"text/html": 0.0, "application/json": 0.0}
    for part in accept.lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        if name in weights:
            quality = next((text[2:] for text in parameters if text.startswith("q=")), "1")
            weights[name] = float(quality) if _QUALITY.fullmatch(quality) else 0.0
    return weights["text/html"] > 0 and weights["text/html"] >= weights["application/json"]


def _to_docs(_scope: Scope) -> Response:
    return RedirectResponse(DOCS)


def _get(endpoint: Callable[[Scope], Response]) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            raise errors.method_not_allowed(scope["method"], "GET, HEAD")
        await endpoint(scope)(scope, receive, send)

    return app
