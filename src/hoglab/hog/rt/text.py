"""Text measured in UTF-16 units, as JavaScript has it.  spec: hog-language 9 (D15).

Python counts characters.  They differ only for characters beyond U+FFFF, which are two units; a unit cut off
from its partner stays in the text as a lone surrogate until the text leaves the program.
"""

from hoglab.hog.patterns import Match, searched
from hoglab.hog.rt import utf16
from hoglab.hog.rt.context import LONG, charge

_WIDE = searched("[\U00010000-\U0010ffff]")


def utf16_length(text: str) -> int:
    """Return the number of UTF-16 units."""
    if text.isascii():
        return len(text)
    if len(text) > LONG:
        charge(len(text) >> 6)
    return len(_encode(text)) >> 1


def _encode(text: str) -> bytes:
    return utf16.encode(text, charge)


def _decode(data: bytes) -> str:
    return utf16.decode(data, "surrogatepass", charge)


def clean(text: str) -> str:
    """Return the text with surrogate pairs joined and lone surrogates replaced by U+FFFD, charged for."""
    return text if text.isascii() else utf16.clean(text, charge)


def utf16_slice(text: str, start: int, end: int) -> str:
    """Return the units from `start` up to, not including, `end`, counted from 0."""
    if text.isascii():
        return text[start:end]
    if len(text) > LONG:
        charge(len(text) >> 6)
    return _decode(_encode(text)[2 * start : 2 * end])


def utf16_reversed(text: str) -> str:
    """Return the units in opposite order."""
    if text.isascii():
        return text[::-1]
    return _decode(memoryview(_encode(text)).cast("H")[::-1].tobytes())


def units(text: str) -> str:
    """Return the text with each character beyond U+FFFF as its two surrogates, so that indexes count units."""
    if text.isascii():
        return text
    if len(text) > LONG:
        charge(len(text) >> 1)
    return _WIDE.sub(_surrogates, text)


def _surrogates(matched: Match[str]) -> str:
    offset = ord(matched[0]) - 0x10000
    return chr(0xD800 + (offset >> 10)) + chr(0xDC00 + (offset & 0x3FF))


def joined(text: str) -> str:
    """Return the text with surrogates that form a pair as one character again; the opposite of `units`."""
    if text.isascii():
        return text
    return _decode(_encode(text))
