"""Undoing compression without trusting it: every format stops at a limit, not after it (spec: sdk-wire 1.9)."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

GZIP_MAGIC = b"\x1f\x8b\x08"

_ZLIB_FIRST_BYTE = b"\x78"
_MAX_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024  # what decoders must support; a larger window is memory for nothing
_CHUNK_BYTES = 256 * 1024


class BrokenDataError(ValueError):
    """The data is not in the format that it claims to be in, or ends too early."""


class TooLargeError(Exception):
    """The data decompresses to more than the limit."""


def gunzip(data: bytes, limit_bytes: int) -> bytes:
    """Decompress gzip members; padding after the last is ignored. Raises `BrokenDataError`, `TooLargeError`."""
    parts: list[bytes] = []
    room = limit_bytes
    while data:
        part, rest = _inflate(data, 31, room)
        parts.append(part)
        room -= len(part)
        if not rest.startswith(GZIP_MAGIC):
            break
        data = rest
    return parts[0] if len(parts) == 1 else b"".join(parts)


def inflate(data: bytes, limit_bytes: int) -> bytes:
    """Decompress deflate data, with the zlib wrapper that HTTP asks for or without it."""
    if data.startswith(_ZLIB_FIRST_BYTE):
        try:
            return _inflate(data, 15, limit_bytes)[0]
        except BrokenDataError:
            pass  # raw data may begin with the same byte
    return _inflate(data, -15, limit_bytes)[0]


def _inflate(data: bytes, window_bits: int, limit_bytes: int) -> tuple[bytes, bytes]:
    """One stream, and what comes after it."""
    stream = zlib.decompressobj(window_bits)
    try:
        part = stream.decompress(data, limit_bytes + 1)
    except zlib.error:
        raise BrokenDataError("it cannot be decompressed") from None
    if len(part) > limit_bytes:
        raise TooLargeError
    if not stream.eof:
        raise BrokenDataError("it ends too early")
    return part, stream.unused_data


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


BY_NAME: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": gunzip,
    "deflate": inflate,
    "br": unbrotli,
    "zstd": unzstd,
}
"""Decompressors by their name in ``Content-Encoding``."""
