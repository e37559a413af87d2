"""The rows of a file, one after the other: JSON lines, CSV (both also compressed by gzip or brotli) and Parquet.

Memory does not grow with the file.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

import brotli
import orjson

from hoglab.storage.event_store.export import FileEngineError, file_engine, without_apostrophe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_ROW_BYTES = 20 * 1024 * 1024
"""A longer line, or field of a CSV file, is refused."""

PARQUET_ROWS = 2_000
PIECE_BYTES = 256 * 1024

_PARQUET = b"PAR1"
"""Beginning of such a file. PostHog names it by the compression inside of it too: ``events.parquet.zst``."""
_JSON_LINES = (".jsonl", ".ndjson", ".json")


class FileError(Exception):
    """The file cannot be read (further); the text is one line that names it."""


class FileRow(NamedTuple):
    """``line`` is where the row stands: a line of a text file, or the number of a row. Counted from 1.

    ``value`` is None when the row cannot be read; ``problem`` then says why.
    """

    line: int
    value: dict[str, Any] | None
    problem: str = ""


class RowFile:
    """A file of rows. ``size`` and ``done`` are bytes, or rows of a Parquet file, for a progress bar."""

    def __init__(self, path: Path) -> None:
        """Raise `FileError` for files that are missing or of an unknown kind."""
        self.path = path
        self.done = 0
        name = path.name.lower()
        self._compression = name.rpartition(".")[2]
        kind = name.removesuffix(".gz").removesuffix(".br")
        try:
            self.size = path.stat().st_size
            with path.open("rb") as file:
                is_parquet = file.read(len(_PARQUET)) == _PARQUET
            if is_parquet:
                self._read = self._parquet
                self.size = self._parquet_rows()
            elif kind.endswith(".csv"):
                self._read = self._csv
            elif kind.endswith(_JSON_LINES):
                self._read = self._json_lines
            else:
                raise FileError(
                    f"{path}: expected .jsonl, .ndjson, .json, .csv (or these with .gz or .br) or Parquet"
                )
        except (OSError, FileEngineError) as error:
            raise self._unreadable(error) from error

    def sha256(self) -> str:
        """Return the hash of the content, in hex."""
        try:
            with self.path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise self._unreadable(error) from error

    def rows(self) -> Iterator[FileRow]:
        """Yield all rows in order. Raises `FileError` where the file cannot be read any further."""
        try:
            yield from self._read()
        except (OSError, EOFError, zlib.error, brotli.error, FileEngineError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: BaseException) -> FileError:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return FileError(f"{self.path} cannot be read: {reason.strip().partition(chr(10))[0]}")

    # --- text

    def _plain(self, raw: BinaryIO) -> BinaryIO:
        """Return the content of a file without its compression."""
        if self._compression == "gz":
            return cast("BinaryIO", gzip.GzipFile(fileobj=raw))
        return cast("BinaryIO", io.BufferedReader(_Brotli(raw))) if self._compression == "br" else raw

    def _lines(self, raw: BinaryIO) -> Iterator[bytes]:
        """Yield lines with their ends; one that is too long comes without its end, cut off."""
        file = self._plain(raw)
        while line := file.readline(MAX_ROW_BYTES):
            yield line
            while not line.endswith(b"\n") and (line := file.readline(MAX_ROW_BYTES)):
                pass  # what is left of a line that is too long
            self.done = raw.tell()

    def _json_lines(self) -> Iterator[FileRow]:
        with self.path.open("rb") as raw:
            for number, line in enumerate(self._lines(raw), 1):
                if number == 1 and line.lstrip()[:1] == b"[":
                    raise FileError(f"{self.path} is one JSON array: write one object on each line")
                if len(line) == MAX_ROW_BYTES:
                    yield FileRow(number, None, f"the line is longer than {MAX_ROW_BYTES} bytes")
                elif line.strip():
                    yield _json_row(number, line)

    def _csv(self) -> Iterator[FileRow]:
        csv.field_size_limit(MAX_ROW_BYTES)
        with self.path.open("rb") as raw:
            binary = self._plain(raw)
            # What is not UTF-8 is kept, so that only its row is refused.
            text = io.TextIOWrapper(binary, encoding="utf-8-sig", errors="surrogateescape", newline="")
            reader = csv.reader(text)
            header: list[str] | None = None
            while True:
                line = reader.line_num + 1
                try:
                    fields = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    yield FileRow(line, None, f"the row is not valid CSV: {error}")
                    continue
                self.done = raw.tell()
                if header is None:
                    header = fields
                    if "event" not in header:
                        raise FileError(f"{self.path} has no column `event`")
                elif fields:
                    yield _csv_row(line, header, fields)

    # --- Parquet

    def _parquet_rows(self) -> int:
        with file_engine() as connection:
            [(rows,)] = connection.execute(
                "SELECT sum(num_rows)::BIGINT FROM parquet_file_metadata($1)", [str(self.path)]
            ).fetchall()
        return int(rows)

    def _parquet(self) -> Iterator[FileRow]:
        with file_engine(threads=1) as connection:
            # The engine hands rows out while it reads, in their order.
            result = connection.execute("SELECT to_json(t) FROM read_parquet($1) AS t", [str(self.path)])
            while rows := result.fetchmany(PARQUET_ROWS):
                for (text,) in rows:
                    self.done += 1
                    yield _json_row(self.done, text)


class _Brotli(io.RawIOBase):
    """Reads brotli data, a piece at a time."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._decoder = brotli.Decompressor()
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._decoder.is_finished():
            given = self._raw.read(PIECE_BYTES) if self._decoder.can_accept_more_data() else b""
            self._ready = memoryview(self._decoder.process(given, output_buffer_limit=PIECE_BYTES))
            if not self._ready and not given:
                raise EOFError("it ends too early")
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


def _json_row(line: int, text: bytes | str) -> FileRow:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return FileRow(line, None, f"the row is not valid JSON: {error}")
    if not isinstance(value, dict):
        return FileRow(line, None, "the row is not a JSON object")
    return FileRow(line, value)


def _csv_row(line: int, header: list[str], fields: list[str]) -> FileRow:
    if len(fields) != len(header):
        return FileRow(line, None, f"the row has {len(fields)} fields instead of {len(header)}")
    return FileRow(line, dict(zip(header, map(without_apostrophe, fields), strict=True)))
