"""The hash that puts people into rollouts, variants and holdouts (spec: sdk-wire 3.2).

Every SDK computes the same numbers, so nothing here may change: 60 bits of SHA-1 as a fraction of 2^60.
"""

from __future__ import annotations

from hashlib import sha1

_SCALE = 2.0**-60
_VARIANT_SALT = b"variant"
_HOLDOUT_PREFIX = b"holdout-"


def fraction(data: bytes) -> float:
    """The first 15 hex digits of SHA-1 as a number from 0 to 1 (1 itself is possible, by rounding)."""
    return (int.from_bytes(sha1(data, usedforsecurity=False).digest()[:8], "big") >> 4) * _SCALE


def rollout_hash(flag_key: str, identifier: str) -> float:
    """Where an identifier lies in the rollout of a flag. The empty one is at 0, inside every rollout."""
    return fraction(f"{flag_key}.{identifier}".encode()) if identifier else 0.0


def variant_hash(flag_key: str, identifier: str) -> float:
    """Where an identifier lies among the variants of a flag."""
    return fraction(f"{flag_key}.{identifier}".encode() + _VARIANT_SALT) if identifier else 0.0


def holdout_hash(identifier: str) -> float:
    """Where an identifier lies in every holdout: they share one order, so the smaller is in the larger."""
    return fraction(_HOLDOUT_PREFIX + identifier.encode())
