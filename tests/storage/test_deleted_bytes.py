"""Rows that are deleted leave the bytes of the embedded databases' files, not their answers alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.embedded import EmbeddedEventLog

from hoglab.storage.database import Database
from hoglab.storage.database.sqlite import connect
from hoglab.storage.database.tables import metadata, queue_metadata
from hoglab.storage.event_log import SequenceNumber

MARK, KEPT = "zq7Xdeletedk93", "zq7Xkeptk93"
SIZES = (3, 90, 700, 9_000, 40_000)
"""Characters beside the mark: within a page, and over several."""
FILES = {"hoglab.db": metadata, "queue.db": queue_metadata}
TABLES = [(file, table.name) for file, known in FILES.items() for table in known.sorted_tables]


def holding(folder: Path, mark: str) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file() and mark.encode() in path.read_bytes()}


def texts(table: sa.Table) -> list[str]:
    """Return the columns that can hold what people sent, keys among them."""
    kinds = (sa.Text, sa.String, sa.LargeBinary, sa.JSON)
    return [
        column.name
        for column in table.columns
        if isinstance(column.type, kinds)
        or (isinstance(column.type, sa.types.TypeDecorator) and isinstance(column.type.impl_instance, kinds))
    ]


def rows_of(table: sa.Table) -> Iterator[dict[str, Any]]:
    """Yield rows of all sizes, each second of which is to be deleted: all of their texts begin with the mark."""
    marked = texts(table)
    for number in range(60):
        size, mark = SIZES[number % len(SIZES)], (MARK, KEPT)[number % 2]
        # A key is short: an index over several of them takes only so many bytes.
        text = f"{mark}-{number}-"
        yield {
            column.name: text + "x" * (0 if column.primary_key else size)
            if column.name in marked
            else number + 1
            for column in table.columns
        }


@pytest.mark.files
@pytest.mark.parametrize(("file", "name"), TABLES)
def test_what_is_deleted_leaves_the_file_and_its_log(tmp_path: Path, file: str, name: str) -> None:
    path, known = tmp_path / file, FILES[file]
    table = known.tables[name]
    marked = texts(table)
    if not marked:
        return
    database = Database.open(path, known)
    with closing(connect(path, known)) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute("PRAGMA ignore_check_constraints=ON")
        names = ", ".join(f'"{column.name}"' for column in table.columns)
        asked = ", ".join("?" for _ in table.columns)
        for row in rows_of(table):
            connection.execute(f'INSERT INTO "{name}" ({names}) VALUES ({asked})', list(row.values()))  # noqa: S608
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert holding(tmp_path, MARK) == {file}
        connection.execute(f"""DELETE FROM "{name}" WHERE "{marked[0]}" LIKE '{MARK}%'""")  # noqa: S608
    database.files[0].give_back()
    assert holding(tmp_path, MARK) == set()
    assert file in holding(tmp_path, KEPT)
    database.dispose()


@pytest.mark.files
def test_records_leave_the_files_of_the_event_log_as_they_are_trimmed(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    log, database = EmbeddedEventLog(path), Database.open(path, queue_metadata)

    async def append(mark: str) -> int:
        for number in range(100):
            offset = await log.append(f"{mark}-{number}-{'x' * SIZES[number % len(SIZES)]}".encode())
        return offset

    offset = asyncio.run(append(MARK))
    asyncio.run(append(KEPT))
    log.commit("ingestion", offset)
    log.trim(SequenceNumber(offset))
    database.files[0].give_back()
    assert holding(tmp_path, MARK) == set()
    assert holding(tmp_path, KEPT) == {"queue.db"}
    log.close()
    database.dispose()
