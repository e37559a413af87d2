"""The hash that puts people into rollouts, variants and holdouts (spec: sdk-wire 3.2).

Every SDK computes the same numbers, so nothing here may change: 60 bits of SHA-1 as a fraction of 2^60.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from hashlib import sha1

_BITS = 60
_SCALE = 2.0**-_BITS
_HOLDOUT_PREFIX = b"holdout-"


def fraction(data: bytes) -> float:
    """Return the first 15 hex digits of SHA-1 as a number from 0 to 1 (1 itself is possible, by rounding)."""
    return fraction_of(place_of(data))


def holdout_hash(identifier: str) -> float:
    """Return the position of an identifier in every holdout: all share one order, so a smaller is part of a larger."""
    return fraction(_HOLDOUT_PREFIX + identifier.encode())


# Positions are compared millions of times, so the bytes of the hash itself are compared. Bytes
# compare like the numbers that they are, and rounding those to float64 keeps their order.

ORIGIN = bytes(8)
"""The place of the number 0, where the empty identifier lies."""


def place_of(data: bytes) -> bytes:
    """Return the position of data, to be compared with `highest_within` and `lowest_beyond`."""
    return sha1(data, usedforsecurity=False).digest()


def fraction_of(place: bytes) -> float:
    """Return the number of a place: from 0 to 1, as `fraction` gives it."""
    return (int.from_bytes(place[:8], "big") >> 4) * _SCALE


def highest_within(bound: float) -> bytes:
    """Return the last place whose number is at most ``bound``.

    ``place <= highest_within(x)`` means ``fraction <= x``.
    """
    number = _lowest(lambda fraction: not fraction <= bound)
    return b"" if number == 0 else (number * 16 - 1).to_bytes(8, "big") + b"\xff" * 12


def lowest_beyond(bound: float) -> bytes:
    """Return the first place whose number is ``bound`` or more.

    ``place < lowest_beyond(x)`` means ``fraction < x``.
    """
    number = _lowest(lambda fraction: not fraction < bound)
    return b"\xff" * 21 if number == 2**_BITS else (number * 16).to_bytes(8, "big")


def _lowest(is_beyond: Callable[[float], bool]) -> int:
    """Return the lowest 60-bit number that is beyond a bound as a fraction; ``2**60`` when none is."""
    return bisect_left(range(2**_BITS), True, key=lambda number: is_beyond(number * _SCALE))
