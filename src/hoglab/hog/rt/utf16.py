"""Text as UTF-16 and back, with lone surrogates.  spec: hog-language 9 (D15).

Python's codecs call a handler for each lone surrogate, which takes a hundred times longer than an ordinary character,
in one operation that nothing can interrupt. Text that has any is therefore converted slice by slice.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, Literal

SLICE: Final = 8_192
"""Characters, or units, of one slice: about a millisecond of work at worst."""

Pay = Callable[[int], None]
"""Charges for work, in units of at most a microsecond."""


def _free(_units: int) -> None:
    """Charge nothing."""


def encode(text: str, pay: Pay = _free, codec: str = "utf-16-le") -> bytes:
    """Return the UTF-16 units of a text; lone surrogates are kept."""
    try:
        return text.encode(codec)
    except UnicodeEncodeError:
        return b"".join(_encoded(text, pay, codec))


def _encoded(text: str, pay: Pay, codec: str) -> Iterator[bytes]:
    for start in range(0, len(text), SLICE):
        pay(SLICE >> 1)
        yield text[start : start + SLICE].encode(codec, "surrogatepass")


def decode(data: bytes, lone: Literal["surrogatepass", "replace"], pay: Pay = _free) -> str:
    """Return the text of units in little-endian order; ``lone``: whether lone surrogates stay or become U+FFFD."""
    try:
        return data.decode("utf-16-le")
    except UnicodeDecodeError:
        return "".join(_decoded(data, lone, pay))


def _decoded(data: bytes, lone: str, pay: Pay) -> Iterator[str]:
    ends = [*range(0, len(data), 2 * SLICE), len(data)]
    for number, end in enumerate(ends[1:-1], 1):
        if data[end - 1] & 0xFC == 0xD8 and data[end + 1] & 0xFC == 0xDC:  # the slice would split a pair
            ends[number] = end + 2
    for start, end in pairwise(ends):
        pay(SLICE >> 1)
        yield data[start:end].decode("utf-16-le", lone)


def clean(text: str, pay: Pay = _free) -> str:
    """Return the text with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return decode(encode(text, pay), "replace", pay)
    return text
