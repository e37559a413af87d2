"""The address of the client behind a request (spec: sdk-wire 1.8)."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Scope


def client_ip(scope: Scope) -> str | None:
    """Return the address of the client, behind proxies too; None when it is not known."""
    forwarded = next((value for name, value in scope["headers"] if name == b"x-forwarded-for"), None)
    ip = forwarded_ip(forwarded) if forwarded else None
    if ip is None and scope.get("client"):
        peer: str = scope["client"][0]
        return peer
    return ip


def forwarded_ip(header: bytes) -> str | None:
    """Return the first entry of an ``X-Forwarded-For`` header without its port; None when it is no address."""
    entry = header.partition(b",")[0]
    return _shown(entry) if len(entry) <= MAX_FORWARDED_BYTES else None


@lru_cache(maxsize=4096)
def _shown(entry: bytes) -> str | None:
    address = _address(entry.decode("latin-1"))
    return None if address is None else str(address)


def nearest_address(scope: Scope) -> str:
    """Return the address by which shares are counted: nobody can choose it freely, unlike the one of `client_ip`.

    It is the peer's, and behind a proxy (a peer on this machine or in a private network) the last address in
    ``X-Forwarded-For`` that is not such a proxy too. For IPv6 it is the network (/64), which one customer has as a
    whole.
    """
    peer = scope["client"][0] if scope.get("client") else ""
    forwarded = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
    return _nearest(peer, forwarded[-MAX_FORWARDED_BYTES:])


def peer_address(scope: Scope) -> str:
    """Return the address of the connected peer, perhaps a proxy.

    Headers are ignored; IPv6 as in `nearest_address`.
    """
    return _nearest(scope["client"][0] if scope.get("client") else "", b"")


def is_local(scope: Scope) -> bool:
    """Return whether a request comes from this machine, and not from elsewhere through a proxy on it.

    A page of another host, whose name leads here (DNS rebinding), gives that name as ``Host``.
    """
    if any(name in _FORWARDING for name, _ in scope["headers"]):
        return False
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    if not all(_is_own_name(host) for host in hosts):
        return False
    peer = _unmapped(scope["client"][0]) if scope.get("client") else None
    return peer is not None and peer.is_loopback


def _is_own_name(host: str) -> bool:
    """Return whether a ``Host`` can only mean this machine: localhost, or an address of the loopback interface."""
    name = host.partition(":")[0].lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = _unmapped(host)
    return address is not None and address.is_loopback


MAX_FORWARDED_BYTES = 512
"""Length of the end of ``X-Forwarded-For`` that is inspected, and maximum length of its first entry."""
_FORWARDING = frozenset(
    (b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip", b"forwarded", b"via")
)
_PROXIES = tuple(
    map(
        ip_network,
        (
            *(
                "127.0.0.0/8",
                "10.0.0.0/8",
                "172.16.0.0/12",
                "192.168.0.0/16",
                "100.64.0.0/10",
                "169.254.0.0/16",
            ),
            *("::1/128", "fc00::/7", "fe80::/10"),
        ),
    )
)
"""Networks of proxies in front of this server: this machine and private networks."""


@lru_cache(maxsize=4096)
def _nearest(peer: str, forwarded: bytes) -> str:
    nearest = _unmapped(peer)
    for text in reversed(forwarded.decode("latin-1").split(",")):
        if nearest is None or not any(nearest in network for network in _PROXIES):
            break
        entry = _unmapped(text)
        if entry is None:
            break
        nearest = entry
    if isinstance(nearest, IPv6Address):
        return ":".join(nearest.exploded.split(":")[:4])
    return peer if nearest is None else str(nearest)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Return an address without its port; None for an invalid one."""
    entry = text.strip()
    if entry.startswith("["):
        entry = entry[1:].partition("]")[0]
    elif entry.count(":") == 1:
        entry = entry.partition(":")[0]
    try:
        return ip_address(entry)
    except ValueError:
        return None


def _unmapped(text: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a text spells, IPv4 also where it came over a socket of IPv6."""
    address = _address(text)
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address
