"""Serving the UI below ``/ui/``, and redirecting to it from addresses that functions put into messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.convertors import Convertor, register_url_convertor
from starlette.routing import Route

from hoglab.http import errors
from hoglab.http.compression import choose_coding
from hoglab.http.requests.body import header
from hoglab.http.responses import send_answer
from hoglab.ui.policy import HEADERS

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from hoglab.ui.assets import Asset, Assets

PATH = "/ui"
PROJECT = "/project"
"""Prefix of addresses of events, persons, groups and functions (`hoglab.delivery.runs.globals.Site`)."""
_FOR_EVER = (b"cache-control", b"public, max-age=31536000, immutable")
_ASK_AGAIN = (b"cache-control", b"no-cache")
_SHOWN = {"experiments", "feature_flags", "functions", "events", "person", "persons", "groups"}


def ui_routes(assets: Assets, prefix: str) -> list[Route]:
    """Return the routes of the UI.

    ``prefix``: the path under which the server is reached, without a slash at its end.
    """
    application = _Application(assets, prefix)
    return [
        Route(PATH, application),
        Route(f"{PATH}/{{path:anything}}", application),
        Route(PROJECT + "/{path:anything}", _ToProject(prefix)),
    ]


class _Anything(Convertor[str]):
    """The rest of a path with any characters: the names of persons may hold line breaks, which `path` excludes."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("anything", _Anything())


class _Application:
    """The files by their names; every other path is a screen, and gets the page."""

    def __init__(self, assets: Assets, prefix: str) -> None:
        self._assets = assets
        self._prefix = prefix

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        _check_method(scope)
        path = str(scope["path"]).removeprefix(PATH)
        if path == "":
            await _redirect(send, f"{self._prefix}{PATH}/")
        elif path.startswith("/assets/"):
            asset = self._assets.files.get(path[1:])
            if asset is None:
                raise errors.endpoint_not_found(scope["path"])
            await _send(scope, send, asset, _FOR_EVER)
        else:
            await _send(scope, send, self._assets.index, _ASK_AGAIN)


class _ToProject:
    """Redirects from ``/project/1/…`` to the screen, with the path encoded as it came."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        _check_method(scope)
        project, *rest = str(scope["path"]).removeprefix(f"{PROJECT}/").rstrip("/").split("/")
        if not project.isdecimal() or (rest and rest[0] not in _SHOWN):
            raise errors.endpoint_not_found(scope["path"])
        raw = bytes(scope.get("raw_path") or str(scope["path"]).encode()).partition(b"?")[0]
        tail = raw.decode("latin-1").removeprefix(f"{PROJECT}/")
        if not tail.isascii() or "\\" in tail or any(ord(character) < 33 for character in tail):
            raise errors.endpoint_not_found(scope["path"])
        await _redirect(send, f"{self._prefix}{PATH}/p/{tail}")


def _check_method(scope: Scope) -> None:
    if scope["method"] not in ("GET", "HEAD"):
        raise errors.method_not_allowed(scope["method"], "GET, HEAD")


async def _redirect(send: Send, location: str) -> None:
    headers = [*HEADERS, _ASK_AGAIN, (b"location", location.encode("ascii"))]
    await send_answer(send, 303, headers=headers)


async def _send(scope: Scope, send: Send, asset: Asset, caching: tuple[bytes, bytes]) -> None:
    tag = asset.tag.encode()
    headers = [*HEADERS, caching, (b"etag", tag), (b"vary", b"Accept-Encoding")]
    if _is_known(header(scope, b"if-none-match"), asset.tag):
        await send_answer(send, 304, headers=headers)
        return
    coding = choose_coding(header(scope, b"accept-encoding"), list(asset.bodies))
    if coding != "identity":
        headers.append((b"content-encoding", coding.encode()))
    await send_answer(send, 200, asset.bodies[coding], asset.media_type, headers)


def _is_known(sent: str | None, tag: str) -> bool:
    """Return whether ``If-None-Match`` names an entity tag, weakly."""
    if sent is None:
        return False
    return sent.strip() == "*" or any(
        sent_tag.strip().removeprefix("W/") == tag for sent_tag in sent.split(",")
    )
