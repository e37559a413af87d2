"""Journal of imports: how far each file came, so that a second run continues where the first one ended.

An append-only file of JSON lines; the last one about a file counts. A line that a crash cut off is skipped: the rows
it spoke of are sent again, under the same uuids.
"""

from __future__ import annotations

import fcntl
from typing import TYPE_CHECKING, Self

import msgspec
import orjson

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


class JournalError(Exception):
    """The journal cannot be used; the text is one line."""


class ImportProgress(msgspec.Struct, frozen=True):
    """``rows`` were dealt with: ``refused`` of them refused, the others taken."""

    rows: int = 0
    refused: int = 0


class _Line(msgspec.Struct):
    file: str  # hash of the content
    target: str
    progress: ImportProgress


class Journal:
    """Used by one import at a time."""

    def __init__(self, path: Path) -> None:
        """Open a journal, creating it when it is missing. Raises `JournalError`."""
        self._known: dict[tuple[str, str], ImportProgress] = {}
        try:
            self._file = path.open("a+b")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalError(f"{path} is in use by another import") from error
        except OSError as error:
            raise JournalError(f"{path} cannot be used as journal: {error.strerror or error}") from error
        self._file.seek(0)
        complete = True
        for text in self._file:
            complete = text.endswith(b"\n")
            try:
                line = msgspec.json.decode(text, type=_Line)
            except msgspec.DecodeError:
                continue
            self._known[line.file, line.target] = line.progress
        if not complete:
            self._file.write(b"\n")

    def progress(self, file_hash: str, target: str) -> ImportProgress:
        """Return progress of a file on its way to a target."""
        return self._known.get((file_hash, target), ImportProgress())

    def record(self, file_hash: str, target: str, progress: ImportProgress) -> None:
        """Record how far the import of a file into a target is."""
        self._known[file_hash, target] = progress
        self._file.write(
            orjson.dumps(_Line(file_hash, target, progress), default=msgspec.to_builtins) + b"\n"
        )
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
