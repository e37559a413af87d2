"""Undoing compression without trusting it: every format stops at a limit, not after it (spec: sdk-wire 1.9).

And percent-encoding, which makes texts longer, but is undone in pieces that take many times its size.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

GZIP_MAGIC = b"\x1f\x8b\x08"

MAX_GZIP_MEMBERS = 1024
"""Most members of gzip data; compressors that make several give each 64 KiB and more."""

_ZLIB_FIRST_BYTE = b"\x78"
_MAX_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024  # what decoders must support; a larger window is memory for nothing
_CHUNK_BYTES = 256 * 1024
_PERCENT_CHUNK_BYTES = 16 * 1024
_PERCENT = 0x25


class BrokenDataError(ValueError):
    """The data is not in the format that it claims to be in, or ends too early."""


class TooLargeError(Exception):
    """The data decompresses to more than the limit."""


def gunzip(data: bytes, limit_bytes: int) -> bytes:
    """Decompress gzip members; padding after the last is ignored. Raises `BrokenDataError`, `TooLargeError`."""
    parts: list[bytes] = []
    room = limit_bytes
    view = memoryview(data)
    while True:
        part, read = _inflate(view, 31, room)
        parts.append(part)
        room -= len(part)
        view = view[read:]
        if bytes(view[:3]) != GZIP_MAGIC:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        if len(parts) == MAX_GZIP_MEMBERS:
            raise BrokenDataError(f"it has more than {MAX_GZIP_MEMBERS} members")


def inflate(data: bytes, limit_bytes: int) -> bytes:
    """Decompress deflate data, with the zlib wrapper that HTTP asks for or without it."""
    if data.startswith(_ZLIB_FIRST_BYTE):
        try:
            return _inflate(memoryview(data), 15, limit_bytes)[0]
        except BrokenDataError:
            pass  # raw data may begin with the same byte
    return _inflate(memoryview(data), -15, limit_bytes)[0]


def _inflate(data: memoryview, window_bits: int, limit_bytes: int) -> tuple[bytes, int]:
    """Return one stream, and where it ends in the data."""
    stream = zlib.decompressobj(window_bits)
    parts: list[bytes] = []
    room = limit_bytes + 1
    # In steps, for what comes after the stream is copied with each: there may be thousands of streams.
    for start in range(0, len(data), _CHUNK_BYTES):
        try:
            part = stream.decompress(data[start : start + _CHUNK_BYTES], room)
        except zlib.error:
            raise BrokenDataError("it cannot be decompressed") from None
        parts.append(part)
        room -= len(part)
        if room <= 0:
            raise TooLargeError
        if stream.eof:
            end = min(start + _CHUNK_BYTES, len(data)) - len(stream.unused_data)
            return parts[0] if len(parts) == 1 else b"".join(parts), end
    raise BrokenDataError("it ends too early")


def unbrotli(data: bytes, limit_bytes: int) -> bytes:
    """Decompress brotli data."""
    import brotli

    stream = brotli.Decompressor()
    parts: list[bytes] = []
    room = limit_bytes + 1
    try:
        while not stream.is_finished():
            part: bytes = stream.process(data, output_buffer_limit=min(room, _CHUNK_BYTES))
            if not part and not data:
                raise BrokenDataError("it ends too early")
            data = b""  # taken in whole; what it still holds comes with the next calls
            parts.append(part)
            room -= len(part)
            if room <= 0:
                raise TooLargeError
    except brotli.error:
        raise BrokenDataError("it cannot be decompressed") from None
    return b"".join(parts)


def unzstd(data: bytes, limit_bytes: int) -> bytes:
    """Decompress one frame of Zstandard data. The text of a frame that was cut short is as far as it goes."""
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW_BYTES)
    parts: list[bytes] = []
    room = limit_bytes + 1
    try:
        stream: Any
        with decompressor.stream_reader(data) as stream:
            while part := stream.read(min(room, _CHUNK_BYTES)):
                parts.append(part)
                room -= len(part)
                if room <= 0:
                    raise TooLargeError
    except zstandard.ZstdError:
        raise BrokenDataError("it cannot be decompressed") from None
    return b"".join(parts)


def percent_decoded(data: bytes) -> bytes:
    """Undo percent-encoding; what is none stays as it is."""
    parts: list[bytes] = []
    start = 0
    while start < len(data):
        end = start + _PERCENT_CHUNK_BYTES
        if end < len(data):
            # An encoded byte is three long, and must not be cut.
            end -= next((back for back in (1, 2) if data[end - back] == _PERCENT), 0)
        parts.append(unquote_to_bytes(data[start:end]))
        start = end
    return b"".join(parts)


BY_NAME: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": gunzip,
    "deflate": inflate,
    "br": unbrotli,
    "zstd": unzstd,
}
"""Decompressors by their name in ``Content-Encoding``."""
