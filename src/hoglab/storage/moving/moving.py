"""The steps of a move; see the package for their order and why."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from hoglab.storage.database import Database, tables
from hoglab.storage.database.counters import counters
from hoglab.storage.event_log.extent import last_offset
from hoglab.storage.moving.rows import StoredTable, batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from sqlalchemy import Table

LEFT_OUT: set[Table] = {
    tables.installation,  # says itself how far the move is
    tables.queue_worker,  # processes that ended
    tables.job,  # what they were at
    tables.query_status,  # answers of a moment
    tables.event_log_head,  # only where several processes append; made of the log's last number
}
_MOVE = tables.installation.c.move
_HEAD = tables.event_log_head


class MoveError(Exception):
    """A move cannot be begun or finished. The message is one line, fit to be shown to an operator."""


@dataclass(frozen=True, slots=True)
class Location:
    """Location of metadata and queue: two files, or twice the address of one database. ``name``: without a password."""

    metadata: Path | str
    queue: Path | str
    name: str

    @contextmanager
    def opened(self) -> Iterator[Opened]:
        """Its databases during the block. Raises `DatabaseError`."""
        database = Database.open(self.metadata, tables.metadata, moving=True)
        try:
            queue = Database.open(self.queue, tables.queue_metadata)
            try:
                yield Opened(self.name, database, queue)
            finally:
                queue.dispose()
        finally:
            database.dispose()


@dataclass(frozen=True, slots=True)
class Opened:
    """The databases of a place."""

    name: str
    database: Database
    queue: Database

    def tables(self) -> Iterator[tuple[Database, StoredTable]]:
        """Every table that moves, such that what others refer to comes first."""
        for database, metadata in ((self.database, tables.metadata), (self.queue, tables.queue_metadata)):
            for table in metadata.sorted_tables:
                if table not in LEFT_OUT:
                    yield database, StoredTable.of(table)

    def home(self) -> dict[str, Any] | None:
        """The row of the installation; None where there is none."""
        with self.database.read() as connection:
            row = connection.execute(sa.select(tables.installation)).mappings().first()
        return None if row is None else dict(row)

    def set_step(self, step: str | None, other: str) -> None:
        mark = None if step is None else {"step": step, "other": other}
        with self.database.write() as tx:
            tx.execute(sa.update(tables.installation).values(move=mark))

    def log_end(self) -> int:
        """The last offset that the event log gave out."""
        with self.queue.read() as connection:
            return last_offset(connection)


@dataclass(frozen=True, slots=True)
class Moved:
    """Contents of the new place after a move. ``written``: rows of this run; ``rows``: of all."""

    tables: int
    rows: int
    written: int


def move(source: Location, target: Location, told: Callable[[str, int, int], object]) -> Moved:
    """Move everything but events. ``told``: of a table, how many of how many rows are there.

    To be called while no server uses either. Raises `MoveError` and `DatabaseError`; called again it goes on.
    """
    with source.opened() as old:
        home = _leaving(old, target.name)
        with target.opened() as new:
            _arriving(new, home, source.name)
            if home["move"] is None:
                old.set_step("leaving", target.name)
            copied = [
                _copied(into, database, table, told)
                for (database, table), (into, _) in zip(old.tables(), new.tables(), strict=True)
            ]
            rows = sum(count for count, _ in copied)
            _compare(old, new, rows, told)
            _count_on(old, new)
            old.set_step("left", target.name)
            new.set_step(None, source.name)
            return Moved(len(copied), rows, sum(written for _, written in copied))


def cancel(source: Location) -> None:
    """Let a move that was begun be; what is in the other database already stays there. Raises `MoveError`."""
    with source.opened() as old:
        home = old.home()
        mark = home and home["move"]
        if not mark or mark["step"] != "leaving":
            raise MoveError(f"no move from {source.name} was begun")
        old.set_step(None, "")


def _leaving(old: Opened, target: str) -> dict[str, Any]:
    """The installation of a source that may leave."""
    home = old.home()
    if home is None:
        raise MoveError(f"there is nothing to move in {old.name}: no server worked with it yet")
    mark = home["move"]
    if mark is not None and (mark["step"] == "arriving" or mark["other"] != target):
        step = {"arriving": "an unfinished move from", "leaving": "a move to", "left": "everything moved to"}
        raise MoveError(
            f"{old.name} cannot be moved to {target}: {step[mark['step']]} {mark['other']} is known"
        )
    return home


def _arriving(new: Opened, home: dict[str, Any], source: str) -> None:
    """Begin at the target, or make sure that it is this move which was begun there."""
    known = new.home()
    mark = {"step": "arriving", "other": source}
    if known is None:
        for database, table in new.tables():
            with database.read() as connection:
                if table.count(connection):
                    raise MoveError(f"{new.name} is not empty: its table {table.name} has rows")
        with new.database.write() as tx:
            tx.execute(sa.insert(tables.installation).values({**home, "move": mark}))
        return
    if known["installation_id"] != home["installation_id"] or known["move"] != mark:
        whose = "this" if known["installation_id"] == home["installation_id"] else "another"
        raise MoveError(f"{new.name} has {whose} installation already: name an empty database")


def _copied(
    into: Database, database: Database, table: StoredTable, told: Callable[[str, int, int], object]
) -> tuple[int, int]:
    """The number of rows that are there, and of those that were written."""
    with into.read() as connection:
        last, there = table.last_key(connection), table.count(connection)
    with database.read() as connection:
        every = table.count(connection)
    written = 0
    with database.read() as connection:
        for batch in batches(table.rows(connection, last)):
            try:
                with into.write() as tx:
                    table.write(tx.connection, batch)
            except sa.exc.DBAPIError as error:
                reason = str(error.orig).strip().partition("\n")[0]
                raise MoveError(f"rows of {table.name} cannot be written to {into.name}: {reason}") from error
            written += len(batch)
            told(table.name, there + written, every)
    return there + written, written


def _compare(old: Opened, new: Opened, every: int, told: Callable[[str, int, int], object]) -> None:
    """Make sure that the rows are the same on both sides. Raises `MoveError`."""
    rows, different = 0, []
    for (database, table), (into, _) in zip(old.tables(), new.tables(), strict=True):
        with database.read() as connection:
            left = table.digest(connection)
        with into.read() as connection:
            arrived = table.digest(connection)
        if left != arrived:
            different.append(f"{table.name} ({left.rows} rows here, {arrived.rows} there)")
        elif arrived.rows:
            rows += arrived.rows
            told("compared", rows, every)
    if different:
        raise MoveError(
            f"{old.name} was changed while it was moved: {', '.join(different)} differ. Stop whatever writes to it, "
            "give this move up (--cancel), empty the target and begin anew"
        )


def _count_on(old: Opened, new: Opened) -> None:
    """Let the target give out larger numbers than the source ever did."""
    end = old.log_end()
    for (database, table), (into, _) in zip(old.tables(), new.tables(), strict=True):
        if not table.counts_up:
            continue
        [key] = table.key
        with database.read() as connection:
            last = counters(connection).last_number(connection, table.name, key)
            largest = table.last_key(connection)
        with into.write() as tx:
            number = max(last, largest[0] if largest else 0)
            counters(tx.connection).go_on_after(tx.connection, table.name, key, number)
    with new.queue.write() as tx:
        if new.queue.is_shared:
            tx.execute(sa.delete(_HEAD))
            tx.execute(sa.insert(_HEAD).values(id=1, last_offset=end, deferrals=0))
        else:
            counters(tx.connection).go_on_after(tx.connection, "event_log_record", "offset", end)
