"""Guard of addresses: which addresses a hog function may reach (spec hog-runtime 9).

Every address that is not public unicast is refused, in any notation, unless the operator allowed it. Addresses of
cloud metadata services are never allowed.
"""

from __future__ import annotations

import socket
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

ALLOW_CIDRS, ALLOW_HOSTS = "HOGLAB_FETCH_ALLOW_CIDRS", "HOGLAB_FETCH_ALLOW_HOSTS"
"""The settings that allow networks and names that are not public."""

METADATA_ADDRESSES: frozenset[Address] = frozenset(
    ip_address(text)
    for text in ("169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200", "fd00:ec2::254")
)

# Ranges that `is_global` of some supported Python takes for public, and ranges that carry an IPv4 address
# within an IPv6 one towards a translator that we do not know.
_REFUSED: tuple[Network, ...] = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "100.64.0.0/10",
        "192.0.0.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "240.0.0.0/4",
        "::/96",  # IPv4-compatible, obsolete
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/32",  # Teredo
        "2001:db8::/32",
        "2002::/16",  # 6to4
        "3fff::/20",
        "5f00::/16",
        "fec0::/10",  # site-local, obsolete
    )
)


class InvalidAllowanceError(ValueError):
    """A network in the operator's settings is not a valid network."""


def effective_address(address: Address) -> Address:
    """Return the address that a connection reaches: an IPv4 address mapped into IPv6 is that IPv4 address."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def is_public(address: Address) -> bool:
    """Return whether an address is public unicast."""
    address = effective_address(address)
    if not address.is_global or address.is_multicast or address.is_reserved or address.is_unspecified:
        return False
    return not any(address in network for network in _REFUSED if network.version == address.version)


def literal_address(host: str) -> Address | None:
    """Return the address that a URL's host denotes by itself, None for a name.

    Accepts what resolvers and browsers accept: dotted quads, and IPv4 in decimal, octal, hexadecimal or with fewer
    than four parts (``0x7f.1``, ``2130706433``), in any Unicode form of the digits, with a dot at the end.
    """
    host = unicodedata.normalize("NFKC", host).strip("[]").rstrip(".")
    without_zone = host.partition("%")[0]
    try:
        return ip_address(without_zone)
    except ValueError:
        pass
    if not host or not host.isascii() or not host[0].isdigit():
        return None
    try:
        # inet_aton reads every historic form, and ignores nothing after it but white space.
        return None if any(c.isspace() for c in host) else IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class AddressGuard:
    """The operator's allowances on top of `is_public`."""

    networks: tuple[Network, ...] = ()
    hosts: frozenset[str] = frozenset()

    @classmethod
    def create(cls, cidrs: Iterable[str] = (), hosts: Iterable[str] = ()) -> AddressGuard:
        """Return a guard that allows some internal networks and host names. Raises `InvalidAllowanceError`."""
        try:
            networks = tuple(ip_network(cidr, strict=False) for cidr in cidrs)
        except ValueError as error:
            raise InvalidAllowanceError(str(error)) from error
        return cls(networks, frozenset(host.lower().rstrip(".") for host in hosts))

    def allows_host(self, host: str) -> bool:
        """Return whether the operator allowed this name, wherever it leads."""
        return host.lower().rstrip(".") in self.hosts

    def allows(self, address: Address, *, host_allowed: bool = False) -> bool:
        """Return whether a connection to this address may be made."""
        address = effective_address(address)
        if address in METADATA_ADDRESSES:
            return False
        if host_allowed or is_public(address):
            return True
        return any(address in network for network in self.networks if network.version == address.version)
