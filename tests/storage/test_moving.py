"""Moving between files and PostgreSQL: nothing is lost, doubled or given out twice, wherever the move is cut off."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from hoglab.storage.database import Database, DatabaseError, from_micros, tables
from hoglab.storage.database.counters import counters
from hoglab.storage.database.errors import DatabaseMovedError
from hoglab.storage.directory import DataDirectory
from hoglab.storage.moving import Location, MoveError, cancel, estimates, move
from hoglab.storage.moving.estimate import SAMPLE_ROWS
from hoglab.storage.moving.location import LEFT_OUT
from hoglab.storage.moving.places import directory_place, make_room, server_as_it_is, server_place
from hoglab.storage.moving.rows import BATCH_ROWS, Digest, StoredTable

ROWS = 3
LOG_END = 77


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DataDirectory]:
    """A directory with rows in every table, whose first numbers are used up."""
    with DataDirectory.open(tmp_path / "data", create=True) as directory:
        for path, metadata in (
            (directory.queue_path, tables.queue_metadata),
            (directory.metadata_path, tables.metadata),
        ):
            database = Database.open(path, metadata)
            with database.write() as tx:
                for table in metadata.sorted_tables:
                    if table is tables.installation:
                        home = {"id": 1, "installation_id": "i", "generation": 2, "starts": 3}
                        tx.execute(sa.insert(table).values(home))
                    elif table not in LEFT_OUT:
                        tx.execute(sa.insert(table), [row_of(table, number) for number in range(1, ROWS + 1)])
                if metadata is tables.queue_metadata:
                    counters(tx.connection).go_on_after(tx.connection, "event_log_record", "offset", LOG_END)
            database.dispose()
        yield directory


def row_of(table: sa.Table, number: int) -> dict[str, Any]:
    """Values of each column that differ by number, and refer to the rows of the same number."""
    return {column.name: cell(column, number) for column in table.columns if not column.system}


def cell(column: sa.Column[Any], number: int) -> Any:
    for key in column.foreign_keys:
        return cell(key.column, number)
    kind = column.type
    if isinstance(kind, sa.Boolean):
        return number % 2 == 0
    if isinstance(kind, sa.LargeBinary):
        return b"\x00\xff" * number
    if isinstance(kind, sa.types.TypeDecorator):
        kind = kind.impl_instance
        if isinstance(kind, sa.Text):
            return {"a": [number, 1.0, "\N{SNOWMAN}", None]}
        return from_micros(number * 1_000_001)
    if isinstance(kind, sa.Integer):
        return number
    if isinstance(kind, sa.Float):
        return number / 3
    return f"{number}é"[: getattr(kind, "length", None) or 9]


def digests(place: Location) -> list[tuple[str, Digest]]:
    found = []
    with place.opened() as opened:
        for database, table in opened.tables():
            with database.read() as connection:
                found.append((table.name, table.digest(connection)))
    return found


def nothing(_table: str, _rows: int, _every: int) -> None:
    """What is told is not looked at."""


def test_there_and_back_everything_is_the_same(directory: DataDirectory, postgres_url: str) -> None:
    files = directory_place(directory)
    before = digests(files)
    assert {each.rows for _, each in before} == {ROWS}
    moved = move(files, server_place(postgres_url), nothing)
    assert (moved.tables, moved.rows, moved.written) == (len(before), ROWS * len(before), ROWS * len(before))
    server = server_place(postgres_url)
    assert digests(server) == before
    with pytest.raises(DatabaseMovedError, match="was moved to the PostgreSQL database"):
        Database.open(directory.metadata_path)
    Database.open(postgres_url).dispose()

    aside = make_room(directory, server)
    assert aside is not None
    assert sorted(path.name for path in aside.iterdir()) == ["hoglab.db", "queue.db"]
    move(server, files, nothing)
    assert digests(files) == before
    with pytest.raises(DatabaseMovedError, match="was moved to /"):
        Database.open(postgres_url)
    Database.open(directory.metadata_path).dispose()
    assert Database.open(directory.metadata_path).files[0].damaged_tables() == []


@pytest.mark.parametrize("back", [False, True])
def test_no_number_is_given_out_twice(directory: DataDirectory, postgres_url: str, *, back: bool) -> None:
    place = directory_place(directory)
    with place.opened() as opened, opened.database.write() as tx:
        tx.execute(sa.delete(tables.experiment).where(tables.experiment.c.id == ROWS))
    move(place, server_place(postgres_url), nothing)
    if back:
        server = server_place(postgres_url)
        make_room(directory, server)
        move(server, place, nothing)
    else:
        place = server_place(postgres_url)
    with place.opened() as opened:
        assert opened.log_end() == LOG_END
        row = row_of(tables.experiment, 2) | {"id": None}
        del row["id"]
        with opened.database.write() as tx:
            key = tx.execute(sa.insert(tables.experiment).values(row)).inserted_primary_key
        assert key is not None
        assert key[0] == ROWS + 1


@pytest.mark.parametrize("calls", [1, 20, 45])
def test_a_move_that_was_cut_off_goes_on(directory: DataDirectory, postgres_url: str, calls: int) -> None:
    files, server = directory_place(directory), server_place(postgres_url)
    before = digests(files)
    left = [calls]

    def cut(_table: str, _rows: int, _every: int) -> None:
        left[0] -= 1
        if not left[0]:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        move(files, server, cut)
    with pytest.raises(DatabaseMovedError, match="is being moved to"):
        Database.open(directory.metadata_path)
    with pytest.raises(DatabaseMovedError, match="is not whole"):
        Database.open(postgres_url)
    moved = move(files, server, nothing)
    assert moved.written == ROWS * max(0, len(before) - calls)
    assert digests(server) == before


def test_many_rows_go_in_parts_and_go_on_in_the_middle(directory: DataDirectory, postgres_url: str) -> None:
    files, server = directory_place(directory), server_place(postgres_url)
    many = 2 * BATCH_ROWS + 10
    with files.opened() as opened, opened.queue.write() as tx:
        rows = [row_of(tables.invocation, number) | {"id": f"{many - number}"} for number in range(10, many)]
        tx.execute(sa.insert(tables.invocation), rows)

    def cut(table: str, rows: int, _every: int) -> None:
        if table == "invocation" and rows > BATCH_ROWS:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        move(files, server, cut)
    move(files, server, nothing)
    assert digests(server) == digests(files)
    in_order = sa.select(tables.invocation.c.id).order_by(tables.invocation.c.rowid)
    with files.opened() as old, server.opened() as new, old.queue.read() as left, new.queue.read() as arrived:
        assert left.scalars(in_order).all() == arrived.scalars(in_order).all()


def test_a_dry_run_estimates_what_will_move(directory: DataDirectory, postgres_url: str) -> None:
    """Beside whoever works with it, and nothing is written on either side."""
    files = directory_place(directory)
    texts = ["a" * (10 if number <= SAMPLE_ROWS else 30) for number in range(1, 2 * SAMPLE_ROWS + 1)]
    busy = Database.open(directory.queue_path, tables.queue_metadata)
    with busy.write() as tx:
        line = row_of(tables.log_entry, ROWS + 1)
        lines = [{**line, "id": ROWS + 1 + number, "message": text} for number, text in enumerate(texts)]
        tx.execute(sa.insert(tables.log_entry), lines)
    before = digests(files)
    with busy.write():
        estimated = {each.table: each for each in estimates(files)}
    assert server_as_it_is(postgres_url).name.startswith("the PostgreSQL database")
    with pytest.raises(MoveError, match="has schema revision none, not"):
        list(estimates(server_as_it_is(postgres_url)))
    assert digests(files) == before

    server = server_place(postgres_url)
    moved = move(files, server, nothing)
    assert sum(each.rows for each in estimated.values()) == moved.rows
    there = {each.table: (each.rows, each.size) for each in estimates(server)}
    assert there == {each.table: (each.rows, each.size) for each in estimated.values()}
    log = estimated["log_entry"]
    rest = sum(len(value) for name, value in line.items() if isinstance(value, str) and name != "message")
    assert log.size == pytest.approx((rest + 20) * log.rows, rel=0.01), "both ends count"
    assert all(each.seconds > 0 for each in estimated.values())
    busy.dispose()


def test_what_changed_meanwhile_is_noticed(directory: DataDirectory, postgres_url: str) -> None:
    files, server = directory_place(directory), server_place(postgres_url)

    def change(table: str, _rows: int, _every: int) -> None:
        if table == "feature_flag":
            with sqlite3.connect(directory.metadata_path) as beside:
                beside.execute("UPDATE feature_flag SET name = 'other' WHERE id = 1")
            beside.close()

    with pytest.raises(MoveError, match=r"feature_flag \(3 rows here, 3 there\) differ"):
        move(files, server, change)
    cancel(files)
    Database.open(directory.metadata_path).dispose()
    with pytest.raises(DatabaseMovedError):
        Database.open(postgres_url)


def test_nothing_is_written_over(directory: DataDirectory, postgres_url: str, tmp_path: Path) -> None:
    files, server = directory_place(directory), server_place(postgres_url)
    with (
        DataDirectory.open(tmp_path / "new", create=True) as empty,
        pytest.raises(MoveError, match="nothing to move"),
    ):
        move(directory_place(empty), server, nothing)
    with server.opened() as opened, opened.database.write() as tx:
        tx.execute(sa.insert(tables.organization).values(row_of(tables.organization, 9)))
    with pytest.raises(MoveError, match="is not empty: its table organization has rows"):
        move(files, server, nothing)
    with server.opened() as opened, opened.database.write() as tx:
        tx.execute(sa.insert(tables.installation).values(id=1, installation_id="x", generation=1, starts=1))
    with pytest.raises(MoveError, match="has another installation"):
        move(files, server, nothing)
    with pytest.raises(MoveError, match="no move from"):
        cancel(files)


def test_a_server_in_use_is_left_alone(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hoglab.storage.moving.places.OTHERS_WAIT_S", 0.2)
    server_place(postgres_url)
    user = Database.open(postgres_url)
    with user.read(), pytest.raises(MoveError, match="is in use"):
        server_place(postgres_url)
    user.dispose()
    server_place(postgres_url)


def test_a_row_that_does_not_fit_is_named(directory: DataDirectory, postgres_url: str) -> None:
    files, server = directory_place(directory), server_place(postgres_url)
    with files.opened() as opened, opened.database.write() as tx:
        tx.execute(sa.update(tables.feature_flag).where(tables.feature_flag.c.id == 1).values(key="k" * 501))
    with pytest.raises((MoveError, DatabaseError), match="feature_flag"):
        move(files, server, nothing)


def test_nul_becomes_what_postgres_can_keep(directory: DataDirectory, postgres_url: str) -> None:
    files, server = directory_place(directory), server_place(postgres_url)
    with files.opened() as opened, opened.database.write() as tx:
        tx.execute(sa.update(tables.feature_flag).where(tables.feature_flag.c.id == 1).values(name="a\0b"))
    move(files, server, nothing)
    with Database.open(postgres_url).read() as connection:
        names = connection.scalars(sa.select(tables.feature_flag.c.name).order_by(tables.feature_flag.c.id))
        assert names.first() == "a\N{REPLACEMENT CHARACTER}b"


def test_digests_tell_values_apart() -> None:
    engine = sa.create_engine("sqlite://")
    table = sa.Table(
        "t", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("x", sa.Text)
    )
    table.metadata.create_all(engine)
    stored = StoredTable.of(table)
    found = set()
    for value in ("", None, "1", "é", " 1"):
        with engine.begin() as connection:
            connection.execute(sa.delete(table))
            connection.execute(sa.insert(table).values(id=1, x=value))
            found.add(stored.digest(connection))
    assert len(found) == 5
