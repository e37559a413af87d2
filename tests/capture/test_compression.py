"""Every compression, read back and stopped at a limit (spec: sdk-wire 1.3, 1.9, 1.15)."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import sys
import time
import tracemalloc
import zlib
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from hoglab.capture.lz64 import Lz64Error, Lz64LimitError, decompress_lz64
from hoglab.http.requests.decompression import BY_NAME, BrokenDataError, TooLargeError, inflate

MIB = 1024 * 1024


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@given(st.binary(max_size=4000))
def test_what_others_compress_is_read(data: bytes) -> None:
    for name, compress in COMPRESSORS.items():
        assert BY_NAME[name](compress(data), 4000) == data
    assert inflate(raw_deflate(data), 4000) == data


@pytest.mark.parametrize("name", COMPRESSORS)
def test_a_bomb_is_refused_at_its_cap(name: str) -> None:
    bomb = COMPRESSORS[name](bytes(64 * MIB))
    assert len(bomb) < 80_000
    tracemalloc.start()
    with pytest.raises(TooLargeError):
        BY_NAME[name](bomb, MIB)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * MIB
    assert len(BY_NAME[name](COMPRESSORS[name](bytes(MIB)), MIB)) == MIB


@pytest.mark.parametrize("name", COMPRESSORS)
@given(junk=st.binary(max_size=200))
def test_junk_is_called_broken(name: str, junk: bytes) -> None:
    with contextlib.suppress(BrokenDataError, TooLargeError):
        assert len(BY_NAME[name](junk, 100)) <= 100


# --- LZ64; the vectors were made with the npm package lz-string 1.5.0

VECTORS: list[tuple[str, str]] = json.loads((Path(__file__).parent / "lz64_vectors.json").read_text())


def test_what_lz_string_writes_is_read() -> None:
    assert len(VECTORS) > 30
    for text, packed in VECTORS:
        assert decompress_lz64(packed.encode(), MIB).decode() == text
        assert decompress_lz64(packed.rstrip("=").replace("+", " ").encode(), MIB).decode() == text


def test_lz64_stops_at_the_limit() -> None:
    text, packed = max(VECTORS, key=lambda pair: len(pair[0]) / len(pair[1]))
    assert len(text) > 20 * len(packed)
    with pytest.raises(Lz64LimitError):
        decompress_lz64(packed.encode(), len(text) - 1)
    assert len(decompress_lz64(packed.encode(), len(text))) == len(text)


def lz64_of(units: Sequence[int], *, of_last: int = 0) -> bytes:
    """LZ64 of code units, each as a new character, then as many phrases, each the one before and a unit more."""
    bits: list[int] = []
    width, room, phrase = 2, 1, 3

    def put(code: int, *further: tuple[int, int]) -> None:
        nonlocal width, room
        for value, size in ((code, width), *further):
            bits.extend(value >> place & 1 for place in range(size))
        for _ in range(1 + bool(further)):
            room -= 1
            if room == 0:
                width, room = width + 1, 1 << width

    for number, unit in enumerate(units):
        put(1, (unit, 16))
        phrase += 1
        if number == 0:
            width, room = 3, 4
        else:
            phrase += 1
    for _ in range(of_last):
        put(phrase)
        phrase += 1
    put(2)
    bits += [0] * (-len(bits) % 8)
    octets = (bits[at : at + 8] for at in range(0, len(bits), 8))
    return base64.b64encode(bytes(int("".join(map(str, each)), 2) for each in octets))


def test_half_characters_of_lz64_become_replacements() -> None:
    units = [0x61, 0xD800, 0xDC00, 0xD801, 0xD802, 0xDC01, 0xDC02, 0x20AC, 0xDBFF, 0xDFFF, 0xD900]
    expected = array("H", units).tobytes().decode(f"utf-16-{sys.byteorder[0]}e", "replace")
    assert decompress_lz64(lz64_of(units), MIB).decode() == expected
    assert expected.count("\ufffd") == 3


@pytest.mark.usefixtures("no_collector")
def test_half_characters_of_lz64_cost_no_more_than_others() -> None:
    """Reading them was forty times slower, in a single call that holds the interpreter."""
    seconds = []
    for unit in (0x20AC, 0xD800):
        packed = lz64_of([unit], of_last=1_000)
        started = time.thread_time()
        assert len(decompress_lz64(packed, 2 * MIB)) > 1_500_000
        seconds.append(time.thread_time() - started)
    assert seconds[1] < 8 * seconds[0] + 0.02, seconds


@pytest.mark.parametrize("data", [b"", b"!", b"AAAA", b"////", b"N4Ig", b"\xff\xff\xff\xff", b"MA=="])
def test_what_is_not_lz64(data: bytes) -> None:
    with pytest.raises(Lz64Error):
        decompress_lz64(data, MIB)


@given(st.text("AQgwIZ019+/=", max_size=300) | st.binary(max_size=100).map(lambda raw: raw.hex()))
def test_no_lz64_does_worse_than_an_error(data: str) -> None:
    with contextlib.suppress(Lz64Error, Lz64LimitError):
        assert len(decompress_lz64(data.encode(), 500)) <= 500
