"""URLs that can be fetched (spec hog-runtime 9).

An error of the URL itself is reported before anything is looked up, and is final, for no later attempt would
differ.
"""

from __future__ import annotations

from yarl import URL

from hoglab.delivery.outbound.addresses import literal_address
from hoglab.patterns import ASCII, DOTALL, anchored, searched

MAX_URL_CHARS = 65_536
"""Maximum length of a URL; most servers accept an eighth of it at the most."""
MAX_HOST_CHARS, MAX_LABEL_CHARS = 253, 63
"""Maximum length of a name, and of each of its parts between dots (RFC 1035)."""

INVALID = "Invalid URL"

_AUTHORITY = anchored(r"[\0-\x20]*+(?:[A-Za-z][A-Za-z0-9+.\-]*+:)?//([^/?#]*+)")
_DROPPED = str.maketrans("", "", "\t\n\r")
"""Characters that parsers of URLs drop, wherever they are."""
_PARTS = anchored(r"([A-Za-z][A-Za-z0-9+.\-]*):(?://([^/?#\\]*))?", DOTALL)
_CONTROL = searched(r"[\0-\x1f\x7f]")
_HOST = anchored(r"[A-Za-z0-9._-]+")
_NUMBER = anchored(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_PLACE = anchored(r"(\[[^\]]*\]|[^:\[]*)(?::(.*))?", DOTALL)
_PORT = anchored(r"[0-9]{0,5}", ASCII)


class UrlError(ValueError):
    """A URL cannot be fetched; the text tells the author of the function why."""


def read_url(text: str) -> URL:
    """Return the URL that a stranger's text is, absolute or relative. Raises `UrlError`.

    Lengths are checked first: to encode a name beyond ASCII takes time that grows with the square of its length.
    """
    text = text.strip()
    if len(text) > MAX_URL_CHARS:
        raise UrlError(f"{INVALID}: it is longer than {MAX_URL_CHARS} characters")
    authority = _AUTHORITY.match(text.translate(_DROPPED))
    if authority is not None and len(authority[1].rpartition("@")[2]) > MAX_HOST_CHARS + len(".:65535"):
        raise UrlError(f"{INVALID}: its hostname is too long")
    try:
        return URL(text)
    except (ValueError, UnicodeError):
        raise UrlError(INVALID) from None


def parse_url(text: str) -> URL:
    """Return a URL that can be fetched. Raises `UrlError`."""
    text = text.strip()
    parts = _PARTS.match(text)
    if parts is None:
        raise UrlError(INVALID)
    if parts[1].lower() not in ("http", "https"):
        raise UrlError("Scheme must be either HTTP or HTTPS")
    _check_authority(parts[2] or "")
    url = read_url(text)
    _check_host(url.raw_host or "")
    return url


def _check_authority(authority: str) -> None:
    """Check the part before the path: ``user:password@host:port``."""
    if _CONTROL.search(authority):
        raise UrlError(f"{INVALID}: there is a control character in its hostname")
    parts = _PLACE.fullmatch(authority.rpartition("@")[2])
    if parts is None:
        raise UrlError(INVALID)
    host, port = parts[1], parts[2] or ""
    if not host:
        raise UrlError("No hostname")
    if len(host) > MAX_HOST_CHARS + 1:
        raise UrlError(f"{INVALID}: its hostname is too long")
    if host.startswith("[") and literal_address(host) is None:
        raise UrlError(INVALID)
    if not _PORT.fullmatch(port) or not 0 < int(port or 80) < 65_536:
        raise UrlError(f"{INVALID}: its port is no number from 1 to 65535")


def _check_host(host: str) -> None:
    """Return a host in the form for look-ups: names beyond ASCII are encoded."""
    if not host:
        raise UrlError("No hostname")
    if literal_address(host) is not None:
        return
    labels = host.removesuffix(".").split(".")
    if not _HOST.fullmatch(host) or not all(labels):
        raise UrlError(f"{INVALID}: its hostname is none")
    if len(host.removesuffix(".")) > MAX_HOST_CHARS or max(map(len, labels)) > MAX_LABEL_CHARS:
        raise UrlError(f"{INVALID}: its hostname is too long")
    if _NUMBER.fullmatch(labels[-1]):
        raise UrlError(f"{INVALID}: its hostname is a number, but no IPv4 address")
