"""Library functions for network addresses.  spec: hog-language 10.5."""

import ipaddress
from functools import lru_cache

from hoglab.hog.patterns import anchored
from hoglab.hog.rt.values import Value
from hoglab.hog.stdlib.registry import function

_NETWORK = anchored(r"[0-9A-Fa-f.:]{2,45}/[0-9]{1,3}")
_MAX_ADDRESS = 64


@lru_cache(maxsize=512)
def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    if not _NETWORK.fullmatch(text):
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


@function(
    "isIPAddressInRange",
    "address: any",
    "range: any",
    category="network",
    returns="boolean",
    infallible=True,
    doc="Whether an IPv4 or IPv6 address lies in a range given as address/prefix length; false for "
    "anything malformed.",
    examples=(
        ("isIPAddressInRange('10.1.2.3', '10.0.0.0/8')", "true"),
        ("isIPAddressInRange('2001:db8::1', '2001:db8::/32')", "true"),
        ("isIPAddressInRange('10.1.2.3', '::/0')", "false"),
        ("isIPAddressInRange(null, '10.0.0.0/8')", "false"),
    ),
)
def _is_ip_in_range(address: Value, network: Value) -> bool:
    if address.__class__ is not str or network.__class__ is not str or len(address) > _MAX_ADDRESS:
        return False
    if len(network) > _MAX_ADDRESS:
        return False
    block = _network(network)
    if block is None:
        return False
    try:
        return ipaddress.ip_address(address) in block
    except ValueError:
        return False
