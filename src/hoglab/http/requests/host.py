"""The ``Host`` header: exactly one, and well-formed (RFC 9112, section 3.2)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from hoglab.http.errors import bad_host
from hoglab.patterns import anchored

if TYPE_CHECKING:
    from starlette.types import Scope

MAX_HOST_BYTES = 255 + len(":65535")
"""Longest host and port."""

_HOST = anchored(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]+|\[[0-9A-Fa-f:.]+\])(?::\d{0,5})?")


def check_host(scope: Scope) -> None:
    """Raise 400 unless a request names one host. HTTP/1.0 need name none."""
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    if len(hosts) == 1 and len(hosts[0]) <= MAX_HOST_BYTES and _is_host(hosts[0]):
        return
    # The server shows a header that is missing as one that is empty.
    if not any(hosts) and scope.get("http_version") in ("1", "1.0"):
        return
    raise bad_host()


@lru_cache(maxsize=256)
def _is_host(value: bytes) -> bool:
    return _HOST.fullmatch(value) is not None
