"""Redirects of requests: which are followed, and the reason that is given for the others.

A 307 or 308 asks for the same request at another URL (RFC 9110, 15.4.8 and 15.4.9), and it is followed to the same
server, or from HTTP to HTTPS at the same host: whatever a request carries, its credentials above all, goes to no other.
All other answers of the 3xx kind acknowledge nothing: 301, 302 and 303 may turn a POST into a GET, and that delivers
nothing.
"""

from __future__ import annotations

from yarl import URL

from hoglab.delivery.outbound.urls import read_url

REPEATING = frozenset({307, 308})
"""Statuses that ask for the same request elsewhere, with its method and its body."""
MAX_REDIRECTS = 3
"""Redirects of one request that are followed."""
SHOWN_CHARS = 300
"""Length of the target of a redirect in an error."""


def next_url(url: str, status: int, location: str | None) -> str | None:
    """Return the URL at which a request is repeated, None when its redirect is not to be followed.

    User and password of ``location`` are left out: the credentials of a request are those that its function gave it.
    """
    if status not in REPEATING:
        return None
    target = _target(url, location)
    if target is None:
        return None
    here = read_url(url)
    is_same = (here.scheme, here.host, here.port) == (target.scheme, target.host, target.port)
    is_upgrade = (here.scheme, target.scheme) == ("http", "https") and here.host == target.host
    return str(target) if is_same or is_upgrade else None


def refusal(url: str, location: str | None, *, exhausted: bool) -> str:
    """Return why an answer of the 3xx kind does not acknowledge a request.

    ``exhausted``: as many redirects as may be were followed before. The query of a target is not shown, for it may
    hold credentials.
    """
    target = _target(url, location)
    if target is None:
        return "redirected to nowhere" if location is None else "redirected to an invalid URL"
    shown = str(target.with_query(None))[:SHOWN_CHARS]
    more = f", after {MAX_REDIRECTS} other redirects" if exhausted else ""
    return f"redirected to {shown}{more}"


def _target(url: str, location: str | None) -> URL | None:
    """Return the absolute URL that ``Location`` names, without user, password and fragment."""
    if not location:
        return None
    try:
        target = read_url(url).join(read_url(location)).with_fragment(None)
        return target.with_user(None) if target.host else None
    except ValueError:
        return None
