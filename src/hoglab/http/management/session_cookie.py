"""The cookie of a session in a browser: its name, and the requests that it authenticates.

Browsers send cookies with every request, also where a foreign page caused it. A cookie counts only where the
browser says that a page of this server sent the request (Fetch Metadata, RFC 6454), which needs no tokens in forms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.requests import cookie_parser

from hoglab.patterns import anchored

if TYPE_CHECKING:
    from starlette.types import Scope

TOKEN_CHARACTERS = 43
"""Length of the 256 random bits of a cookie, or of a link that opens a session, as URL-safe base64."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

_SECURE_NAME = "__Host-hoglab"
"""Over HTTPS. Browsers take a cookie of such a name from nobody but this very host."""
_ATTRIBUTES = "HttpOnly; SameSite=Strict; Path=/"
_TOKEN = anchored(rf"[A-Za-z0-9_-]{{{TOKEN_CHARACTERS}}}")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def is_token(text: str) -> bool:
    """Return whether a text has the form of what a cookie or a link carries."""
    return _TOKEN.fullmatch(text) is not None


def session_token(scope: Scope, public_url: str | None) -> str | None:
    """Return the token in the session cookie of a request; None where there is none that counts.

    ``public_url``: the address of the server as its settings name it, without which a request itself tells it.
    """
    if not is_same_origin(scope, public_url):
        return None
    name = _cookie_name(scope, public_url)
    jars = [value.decode("latin-1") for header, value in scope["headers"] if header == b"cookie"]
    # Of two under one name, one was put there by somebody else (another port, or a path of this one).
    pairs = [pair for jar in jars for pair in jar.split(";") if pair.partition("=")[0].strip() == name]
    token = cookie_parser(pairs[0]).get(name, "") if len(pairs) == 1 else ""
    return token if is_token(token) else None


def is_same_origin(scope: Scope, public_url: str | None) -> bool:
    """Return whether a page of this server sent the request, or nobody can have asked for more than reading."""
    site, origin = _headers(scope, b"sec-fetch-site"), _headers(scope, b"origin")
    if not site and not origin:
        return scope["method"] in SAFE_METHODS
    return not is_foreign(scope, public_url)


def is_foreign(scope: Scope, public_url: str | None) -> bool:
    """Return whether a browser says that another page than one of this server sent the request."""
    site = _headers(scope, b"sec-fetch-site")
    if site:
        return site != [b"same-origin"]
    origin = _headers(scope, b"origin")
    return bool(origin) and not (
        len(origin) == 1 and _origin(origin[0].decode("latin-1")) in _own_origins(scope, public_url)
    )


def set_cookie(scope: Scope, public_url: str | None, token: str, max_age_s: int) -> str:
    """Return the ``Set-Cookie`` header that gives a browser its session; an empty token and no age take it away."""
    secure = "; Secure" if _is_https(scope, public_url) else ""
    return f"{_cookie_name(scope, public_url)}={token}; Max-Age={max_age_s}; {_ATTRIBUTES}{secure}"


def _cookie_name(scope: Scope, public_url: str | None) -> str:
    """Return the name of the cookie, which without HTTPS has the port.

    Cookies ignore ports, and two servers of one machine must not log each other out.
    """
    if _is_https(scope, public_url):
        return _SECURE_NAME
    host = _headers(scope, b"host")
    named = _origin(f"http://{host[0].decode('latin-1')}") if host else None
    return f"hoglab-{named[2] if named else scope['server'][1]}"


def _is_https(scope: Scope, public_url: str | None) -> bool:
    """Return whether the server's address has HTTPS, by the settings if they say so.

    Headers that a proxy may have sent are not considered.
    """
    scheme = scope["scheme"] if public_url is None else urlsplit(public_url).scheme
    return bool(scheme == "https")


def _own_origins(scope: Scope, public_url: str | None) -> set[tuple[str, str, int]]:
    host = _headers(scope, b"host")
    addresses = [f"{scope['scheme']}://{host[0].decode('latin-1')}"] if host else []
    if public_url is not None:
        addresses.append(public_url)
    return {origin for origin in map(_origin, addresses) if origin is not None}


def _origin(address: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of an address; None for one without, such as ``null``."""
    try:
        parts = urlsplit(address)
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    return (parts.scheme, parts.hostname, port) if parts.hostname and "@" not in parts.netloc else None


def _headers(scope: Scope, name: bytes) -> list[bytes]:
    return [value for header, value in scope["headers"] if header == name]
