"""The steps of a move; see the package for their order and why."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import sqlalchemy as sa

from hoglab.storage.database import tables
from hoglab.storage.database.counters import counters
from hoglab.storage.moving.errors import MoveError
from hoglab.storage.moving.parts import parts
from hoglab.storage.moving.rows import batches, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Any

    from sqlalchemy import Table

    from hoglab.storage.database import Database
    from hoglab.storage.moving.events import MovedEvents
    from hoglab.storage.moving.location import Location, Opened
    from hoglab.storage.moving.log import RecordFormat
    from hoglab.storage.moving.rows import StoredTable

_HEAD = tables.event_log_head


@dataclass(frozen=True, slots=True)
class Moved:
    """Contents of the new place after a move. ``written``: rows of this run; ``rows``: of all.

    ``events`` and ``records``: the events, and the records that wait to be ingested, where these moved.
    """

    tables: int = 0
    rows: int = 0
    written: int = 0
    events: MovedEvents | None = None
    records: int | None = None


def move(
    source: Location,
    target: Location,
    on_progress: Callable[[str, int, int], object],
    format_: RecordFormat | None = None,
) -> Moved:
    """Move what is not in the same place before and afterwards.

    Without places for events these are left alone. ``on_progress``: of a table, how many of how many rows are there.
    ``format_``: of the records, where the log moves, too. To be called while no server uses either. Raises `MoveError`
    and `DatabaseError`; called again it goes on.
    """
    is_within = source.metadata == target.metadata
    other = _other(source, target)
    with ExitStack() as stack:
        old = stack.enter_context(source.opened())
        home = _leaving(old, other)
        new = old if is_within else stack.enter_context(target.opened())
        beside = stack.enter_context(parts(old, home, source, target, format_))
        if not is_within:
            _arriving(new, home, source.name)
        if home["move"] is None:
            old.set_step("leaving", other)
        moved = Moved()
        if not (home["move"] or {}).get("is_whole"):
            beside.begin()
            if not is_within:
                moved = _moved_rows(old, new, beside.left_out, on_progress)
            moved = replace(
                moved,
                events=beside.move_events(on_progress),
                records=None if beside.log is None else beside.log.move(new),
            )
        if is_within:
            old.set_step("leaving", other, is_whole=True)
        end = beside.settle(new, moved.records or 0)
        _count_on(old, new, beside.left_out, old.log_end() if end is None else end)
        if not is_within:
            old.set_step("left", target.name)
        new.set_home(generation=beside.generation)
        return moved


def _other(source: Location, target: Location) -> str:
    """Return the name of where everything goes, for the installation that leaves.

    Raises `MoveError` where that is here.
    """
    if source.metadata != target.metadata:
        return target.name
    if target.events is None or target.events == source.events:
        raise MoveError(f"{target.name} has everything already")
    return target.events.name


def _moved_rows(
    old: Opened, new: Opened, left_out: Collection[Table], on_progress: Callable[[str, int, int], object]
) -> Moved:
    """Return rows of all tables but some, written and compared."""
    pairs = [
        (database, into, table)
        for (database, table), (into, _) in zip(old.tables(left_out), new.tables(left_out), strict=True)
    ]
    copied = [_copied(into, database, table, on_progress) for database, into, table in pairs]
    rows = sum(count for count, _ in copied)
    _compare(old.name, pairs, rows, on_progress)
    return Moved(len(copied), rows, sum(written for _, written in copied))


def cancel(source: Location) -> None:
    """Give a begun move up; what is in the other database already stays there. Raises `MoveError`."""
    with source.opened() as old:
        home = old.home()
        mark = home and home["move"]
        if not mark or mark["step"] != "leaving":
            raise MoveError(f"no move from {source.name} was begun")
        if mark.get("is_whole"):
            raise MoveError(f"everything is in {mark['other']} already: run the move again to finish it")
        old.set_home()


def _leaving(old: Opened, target: str) -> dict[str, Any]:
    """Return the installation of a source that may leave."""
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
    into: Database, database: Database, table: StoredTable, on_progress: Callable[[str, int, int], object]
) -> tuple[int, int]:
    """Return the number of rows that are there, and of those that were written."""
    with into.read() as connection:
        last, there = table.last_key(connection), table.count(connection)
    with database.read() as connection:
        every = table.count(connection)
    written = 0
    with database.read() as connection:
        for batch in batches(table.rows(connection, last), size_of):
            try:
                with into.write() as tx:
                    table.write(tx.connection, batch)
            except sa.exc.DBAPIError as error:
                reason = str(error.orig).strip().partition("\n")[0]
                raise MoveError(f"rows of {table.name} cannot be written to {into.name}: {reason}") from error
            written += len(batch)
            on_progress(table.name, there + written, every)
    return there + written, written


def _compare(
    name: str,
    pairs: Sequence[tuple[Database, Database, StoredTable]],
    every: int,
    on_progress: Callable[[str, int, int], object],
) -> None:
    """Make sure that the rows are the same on both sides. Raises `MoveError`."""
    rows, different = 0, []
    for database, into, table in pairs:
        with database.read() as connection:
            left = table.digest(connection)
        with into.read() as connection:
            arrived = table.digest(connection)
        if left != arrived:
            different.append(f"{table.name} ({left.rows} rows here, {arrived.rows} there)")
        elif arrived.rows:
            rows += arrived.rows
            on_progress("compared", rows, every)
    if different:
        raise MoveError(
            f"{name} was changed while it was moved: {', '.join(different)} differ. Stop what writes to it, "
            "give this move up (--cancel), empty the target and start again"
        )


def _count_on(old: Opened, new: Opened, left_out: Collection[Table], log_end: int) -> None:
    """Let the target give out larger numbers than the source ever did."""
    for (database, table), (into, _) in zip(old.tables(left_out), new.tables(left_out), strict=True):
        if not table.counts_up or database is into:
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
            tx.execute(sa.insert(_HEAD).values(id=1, last_offset=log_end, deferrals=0))
        else:
            counters(tx.connection).go_on_after(tx.connection, "event_log_record", "offset", log_end)
