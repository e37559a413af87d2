"""The address of the client behind a request (spec: sdk-wire 1.8)."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address


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
