"""Reading LZ64: the base64 form of lz-string's LZW, which old versions of posthog-js send (spec: sdk-wire 1.3).

The package ``lzstring`` reads it too, but knows no limit: a few hundred bytes make it build gigabytes. This
reader stops at a limit, and its table says of each phrase only where in the text it stands.

The format: a stream of codes, each with its lowest bit first, whose width grows as phrases are added. Code 0
announces a new character of 8 bits, 1 one of 16 bits, 2 the end; others name phrases. Characters are UTF-16
code units.
"""

from __future__ import annotations

import base64
import binascii
import sys
from array import array

import numpy as np

_BASE64_ZERO = b"A"
_NEW_8_BITS, _NEW_16_BITS, _END = 0, 1, 2
_FIRST_PHRASE = 3
_SURROGATE_BITS, _HIGH_SURROGATE, _LOW_SURROGATE = 0xFC00, 0xD800, 0xDC00
_REPLACEMENT = 0xFFFD
_UTF_16 = f"utf-16-{sys.byteorder[0]}e"
_MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


class Lz64Error(ValueError):
    """The data is not LZ64."""


class Lz64LimitError(Exception):
    """The data decompresses to more than the limit."""


def decompress_lz64(data: bytes, limit_bytes: int) -> bytes:
    """Return the text as UTF-8. Raises `Lz64Error`, and `Lz64LimitError` as soon as more than the limit is known."""
    digits = data.strip().replace(b" ", b"+").rstrip(b"=")
    try:
        # What is missing of the last four digits counts as zero bits, however it was padded.
        packed = base64.b64decode(digits + _BASE64_ZERO * (-len(digits) % 4), validate=True)
    except binascii.Error:
        raise Lz64Error("it is not base64") from None
    utf8 = _text(_units(_Bits(packed), limit_bytes)).encode()
    if len(utf8) > limit_bytes:
        raise Lz64LimitError
    return utf8


def _text(units: array[int]) -> str:
    """Return surrogates without their other half become U+FFFD, all at once.

    The codec takes longer for each of them than for a page of text.
    """
    codes = np.frombuffer(units, dtype=np.uint16)
    kinds = codes & _SURROGATE_BITS
    first, second = kinds == _HIGH_SURROGATE, kinds == _LOW_SURROGATE
    alone = first | second
    pairs = np.flatnonzero(first[:-1] & second[1:])
    alone[pairs] = alone[pairs + 1] = False
    return np.where(alone, np.uint16(_REPLACEMENT), codes).tobytes().decode(_UTF_16)


class _Bits:
    """Numbers from a stream of bits that begins at the highest bit of each byte."""

    def __init__(self, packed: bytes) -> None:
        self._bytes = packed.translate(_MIRRORED)
        self._at = 0
        self._end = len(packed) * 8

    def take(self, width: int) -> int:
        """Return the next number, whose lowest bit comes first."""
        at = self._at
        self._at = at + width
        if self._at > self._end:
            raise Lz64Error("it ends too early")
        start = at >> 3
        window = int.from_bytes(self._bytes[start : start + (width + 14 >> 3)], "little")
        return window >> (at & 7) & ((1 << width) - 1)


def _units(bits: _Bits, limit_units: int) -> array[int]:
    """Return the code units of the text. A phrase is the one before it, and the unit that follows that in the text."""
    written = array("H")
    first = bits.take(2)
    if first == _END:
        return written
    if first > _END:
        raise Lz64Error("it names a phrase before there is one")
    written.append(_unit(bits, first))
    starts = array("L", (0, 0, 0, 0))  # the first three codes name no phrase
    ends = array("L", (0, 0, 0, 1))
    start = 0  # of the last phrase that was written
    width, room = 3, 4  # codes until the width grows
    while True:
        code = bits.take(width)
        if code == _END:
            return written
        end = len(written)
        if code < _FIRST_PHRASE:
            written.append(_unit(bits, code))
            starts.append(end)
            ends.append(end + 1)
            room -= 1
            if room == 0:
                width, room = width + 1, 1 << width
        elif code < len(starts):
            written += written[starts[code] : ends[code]]
        elif code == len(starts):
            written += written[start:end]
            written.append(written[start])
        else:
            raise Lz64Error("it names a phrase that does not exist")
        if len(written) > limit_units:
            raise Lz64LimitError
        starts.append(start)
        ends.append(end + 1)
        start = end
        room -= 1
        if room == 0:
            width, room = width + 1, 1 << width


def _unit(bits: _Bits, code: int) -> int:
    return bits.take(8 if code == _NEW_8_BITS else 16)
