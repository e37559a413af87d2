"""The address of the client behind a request (spec: sdk-wire 1.8)."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Scope


def client_ip(scope: Scope) -> str | None:
    """The address of the client, behind proxies too; None when nothing tells it."""
    forwarded = next((value for name, value in scope["headers"] if name == b"x-forwarded-for"), None)
    ip = forwarded_ip(forwarded) if forwarded else None
    if ip is None and scope.get("client"):
        peer: str = scope["client"][0]
        return peer
    return ip


@lru_cache(maxsize=4096)
def forwarded_ip(header: bytes) -> str | None:
    """The first entry of an ``X-Forwarded-For`` header without its port; None when it is no address."""
    entry = header.decode("latin-1").partition(",")[0].strip()
    if entry.startswith("["):
        entry = entry[1:].partition("]")[0]
    elif entry.count(":") == 1:
        entry = entry.partition(":")[0]
    try:
        return str(ip_address(entry))
    except ValueError:
        return None
