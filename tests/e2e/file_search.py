"""Where in a data directory somebody is named, in whatever form files hold it. Nobody may be using the directory."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import zstandard

MAX_STREAM_BYTES = 64 * 1024 * 1024
_SQLITE, _DUCKDB = b"SQLite format 3\0", b"DUCK"


def places(data: Path, marks: Sequence[str]) -> set[str]:
    """Where any of the texts stand: ``file``, ``file (compressed)``, ``file:table.column``."""
    wanted = re.compile(b"|".join(re.escape(mark.encode()) for mark in marks))
    found: set[str] = set()
    for path in data.rglob("*"):
        if not path.is_file():
            continue
        content, name = path.read_bytes(), str(path.relative_to(data))
        if wanted.search(content):
            found.add(name)
        if any(wanted.search(text) for text in _unpacked(content)):
            found.add(f"{name} (compressed)")
        if content.startswith(_SQLITE):
            found |= {f"{name}:{place}" for place in _in_sqlite(path, wanted, marks)}
        elif content[8:12] == _DUCKDB:
            found |= {f"{name}:{place}" for place in _in_duckdb(path, marks)}
    return found


def packed_cells(data: Path, marks: Sequence[str]) -> list[bytes]:
    """A part of each compressed value in a SQLite file that holds a text, as it stands in the file."""
    wanted = re.compile(b"|".join(re.escape(mark.encode()) for mark in marks))
    found = []
    for path in data.glob("*.db"):
        for _, value in _cells(path):
            raw = value if isinstance(value, bytes) else b""
            if not wanted.search(raw) and any(wanted.search(text) for text in _unpacked(raw)):
                middle = len(raw) // 2
                found.append(raw[middle - 16 : middle + 16])
    return found


def _in_sqlite(path: Path, wanted: re.Pattern[bytes], marks: Sequence[str]) -> Iterator[str]:
    for column, value in _cells(path):
        raw = value.encode() if isinstance(value, str) else value
        if isinstance(raw, bytes) and (
            wanted.search(raw) or any(wanted.search(text) for text in _unpacked(raw))
        ):
            yield column
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'person_search'").fetchone():
            for mark in marks:  # an index of parts of three letters, each for itself
                parts = " AND ".join(f'"{mark[start : start + 3]}"' for start in range(len(mark) - 2))
                if connection.execute(
                    "SELECT 1 FROM person_search WHERE person_search MATCH ?", (parts,)
                ).fetchone():
                    yield "person_search"


def _cells(path: Path) -> Iterator[tuple[str, Any]]:
    """All values of a database, with the column that they are in."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        for (table,) in connection.execute(tables).fetchall():
            rows = connection.execute(f'SELECT * FROM "{table}"')  # noqa: S608
            names = [column[0] for column in rows.description]
            for row in rows:
                yield from ((f"{table}.{name}", value) for name, value in zip(names, row, strict=True))


def _in_duckdb(path: Path, marks: Sequence[str]) -> Iterator[str]:
    with duckdb.connect(str(path), read_only=True) as connection:
        columns = connection.execute(
            "SELECT table_schema, table_name, column_name FROM information_schema.columns "
            "JOIN information_schema.tables USING (table_catalog, table_schema, table_name) "
            "WHERE table_type = 'BASE TABLE'"
        ).fetchall()
        for schema, table, column in columns:
            has = " OR ".join(f"contains(\"{column}\"::VARCHAR, '{mark}')" for mark in marks)
            if connection.execute(f'SELECT 1 FROM "{schema}"."{table}" WHERE {has} LIMIT 1').fetchone():  # noqa: S608
                yield f"{table}.{column}"


def _unpacked(content: bytes) -> Iterator[bytes]:
    """What begins like a compressed stream, unpacked as far as it goes: parts may be somewhere else in the file."""
    for begin, bits in ((rb"\x1f\x8b\x08", 31), (rb"\x78[\x01\x5e\x9c\xda]", 15)):
        for start in re.finditer(begin, content):
            with contextlib.suppress(zlib.error):
                yield zlib.decompressobj(bits).decompress(content[start.start() :], MAX_STREAM_BYTES)
    for start in re.finditer(rb"\x28\xb5\x2f\xfd", content):
        yield _zstd(content[start.start() :])


def _zstd(content: bytes) -> bytes:
    reader, parts = zstandard.ZstdDecompressor().stream_reader(content), []
    with contextlib.suppress(zstandard.ZstdError):
        while part := reader.read(65_536):
            parts.append(part)
    return b"".join(parts)
