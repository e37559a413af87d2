"""Text measured in UTF-16 units, as JavaScript has it.  spec: hog-language 9 (D15).

Python counts characters.  They differ only for characters beyond U+FFFF, which are two units; a unit cut off
from its partner stays in the text as a lone surrogate until the text leaves the program.
"""

import re

_WIDE = re.compile("[\U00010000-\U0010ffff]")


def utf16_length(text: str) -> int:
    """The number of UTF-16 units."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "surrogatepass")) >> 1


def has_wide(text: str) -> bool:
    """Whether some character is beyond U+FFFF, so that units and characters are not the same."""
    return not text.isascii() and max(text) > "\uffff"


def units(text: str) -> str:
    """The text with each character beyond U+FFFF as its two surrogates, so that indexes count units."""
    if not has_wide(text):
        return text
    return _WIDE.sub(_surrogates, text)


def _surrogates(found: re.Match[str]) -> str:
    offset = ord(found[0]) - 0x10000
    return chr(0xD800 + (offset >> 10)) + chr(0xDC00 + (offset & 0x3FF))


def joined(text: str) -> str:
    """The text with surrogates that form a pair as one character again; the opposite of `units`."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
