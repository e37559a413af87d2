"""Writes small GeoIP databases: enough of MaxMind's format 2.0 to hold one network."""

from __future__ import annotations

import struct
from ipaddress import IPv4Network
from typing import Any

_MARKER = b"\xab\xcd\xefMaxMind.com"
_SEPARATOR = bytes(16)
_WIDE = {
    "node_count": 6,
    "build_epoch": 9,
}  # kinds of whole numbers in the description; the others have 16 bits


def database(network: str, record: dict[str, Any]) -> bytes:
    """A database that knows ``record`` for one IPv4 network and nothing else."""
    parsed = IPv4Network(network)
    address, count = int(parsed.network_address), parsed.prefixlen
    tree = b""
    for depth in range(count):
        bit = address >> (31 - depth) & 1
        onward = depth + 1 if depth + 1 < count else count + len(_SEPARATOR)
        pair = (count, onward) if bit else (onward, count)
        tree += b"".join(node.to_bytes(3, "big") for node in pair)
    about = {
        "binary_format_major_version": 2,
        "binary_format_minor_version": 0,
        "build_epoch": 1,
        "database_type": "Test-City",
        "description": {"en": "test"},
        "ip_version": 4,
        "languages": ["en"],
        "node_count": count,
        "record_size": 24,
    }
    described = b"".join(
        _encoded(name) + (_number(value, _WIDE.get(name, 5)) if isinstance(value, int) else _encoded(value))
        for name, value in about.items()
    )
    return tree + _SEPARATOR + _encoded(record) + _MARKER + _head(7, len(about)) + described


def _encoded(value: Any) -> bytes:
    if isinstance(value, dict):
        return _head(7, len(value)) + b"".join(_encoded(k) + _encoded(v) for k, v in value.items())
    if isinstance(value, list):
        return _head(11, len(value)) + b"".join(map(_encoded, value))
    if isinstance(value, float):
        return _head(3, 8) + struct.pack(">d", value)
    if isinstance(value, int):
        return _number(value, 6)
    raw = value.encode()
    return _head(2, len(raw)) + raw


def _number(value: int, kind: int) -> bytes:
    raw = value.to_bytes(8, "big").lstrip(b"\0")
    return _head(kind, len(raw)) + raw


def _head(kind: int, size: int) -> bytes:
    extended = kind > 7
    large = size >= 29
    first = (0 if extended else kind << 5) | (29 if large else size)
    return bytes([first]) + (bytes([kind - 7]) if extended else b"") + (bytes([size - 29]) if large else b"")
