"""The metadata database: transactions, snapshots, turns of writers, errors and the change feed."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import MetaData, func, insert, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError
from tests.databases import ENGINES, template
from tests.waiting import PATIENCE_S

from hoglab.storage.database import (
    Database,
    DatabaseBusyError,
    DatabaseFullError,
    DatabaseUnreachableError,
    DatabaseUnreadableError,
    NestedWriteError,
    Transaction,
    UnsupportedDatabaseError,
    from_micros,
    locks,
    sqlite,
    tables,
    to_micros,
)
from hoglab.storage.database.sqlite import connections
from hoglab.storage.database.tables.base import CHECKPOINT_PAGES

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture(params=ENGINES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database on each of the engines in turn."""
    with template(request, "migrated", engine=request.param).copied(tmp_path) as address:
        database = Database.open(address)
        yield database
        database.dispose()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Database]:
    """A file of SQLite."""
    database = Database.open(tmp_path / "hoglab.db")
    yield database
    database.dispose()


def add_organization(tx: Transaction, key: str) -> None:
    tx.execute(insert(tables.organization).values(id=key, name=f"Org {key}", created_at=NOW))


def names(database: Database) -> list[str]:
    with database.read() as connection:
        return list(connection.scalars(select(tables.organization.c.id).order_by(tables.organization.c.id)))


class TestTransactions:
    def test_a_block_that_ends_is_committed(self, database: Database) -> None:
        with database.write() as tx:
            add_organization(tx, "a")
        with database.read() as connection:
            row = connection.execute(select(tables.organization)).one()
        assert (row.id, row.name, row.created_at) == ("a", "Org a", NOW)

    def test_a_block_that_raises_leaves_nothing(self, database: Database) -> None:
        def fail_halfway() -> None:
            with database.write() as tx:
                add_organization(tx, "a")
                tx.changed("project", 1)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail_halfway()
        assert names(database) == []
        assert database.changes.version("project", 1) == 0
        with database.write() as tx:
            add_organization(tx, "b")
        assert names(database) == ["b"]

    def test_a_savepoint_inside_a_transaction_can_fail_alone(self, database: Database) -> None:
        with database.write() as tx:
            add_organization(tx, "a")
            with pytest.raises(IntegrityError), tx.connection.begin_nested():
                tx.execute(insert(tables.membership).values(organization_id="x", user_id=1, joined_at=NOW))
            add_organization(tx, "c")
        assert names(database) == ["a", "c"]

    def test_foreign_keys_hold(self, database: Database) -> None:
        lost = {"organization_id": "x", "user_id": 1, "level": 1, "joined_at": NOW}
        with pytest.raises(IntegrityError), database.write() as tx:
            tx.execute(insert(tables.membership).values(lost))

    def test_a_second_write_inside_the_first_is_refused_instead_of_hanging(self, database: Database) -> None:
        with database.write() as tx:
            with pytest.raises(NestedWriteError), database.write():
                pytest.fail("the inner block must not run")
            add_organization(tx, "a")
        assert names(database) == ["a"]

    def test_reading_inside_a_write_sees_the_state_before_it(self, database: Database) -> None:
        with database.write() as tx:
            add_organization(tx, "a")
            assert names(database) == []

    def test_everything_is_still_there_after_opening_again(self, tmp_path: Path) -> None:
        database = Database.open(tmp_path / "again.db")
        with database.write() as tx:
            add_organization(tx, "a")
            tx.changed("flags", 7)
        database.dispose()
        database = Database.open(f"sqlite:///{tmp_path / 'again.db'}")
        assert names(database) == ["a"]
        assert database.changes.version("flags", 7) == 1
        database.dispose()

    def test_the_write_ahead_log_is_worked_into_the_file_when_it_is_large(
        self, file: Database, tmp_path: Path
    ) -> None:
        wal, limit_bytes, text_bytes = tmp_path / "hoglab.db-wal", CHECKPOINT_PAGES * 4096, 4 * 1024 * 1024
        with file.write() as tx:
            add_organization(tx, "a")
        sizes = []
        for number in range(3 * limit_bytes // text_bytes):
            with file.write() as tx:
                tx.execute(update(tables.organization).values(name=str(number % 10) * text_bytes))
            sizes.append(wal.stat().st_size)
        assert limit_bytes <= max(sizes) < limit_bytes + 2 * text_bytes


class TestReaders:
    def test_a_reader_keeps_its_snapshot_while_others_write(self, database: Database) -> None:
        count = select(func.count()).select_from(tables.organization)
        with database.read() as connection:
            assert connection.scalar(count) == 0
            with database.write() as tx:
                add_organization(tx, "a")
            assert connection.scalar(count) == 0
        with database.read() as connection:
            assert connection.scalar(count) == 1

    def test_a_reader_cannot_write(self, database: Database) -> None:
        with (
            pytest.raises(DatabaseUnreadableError, match="may not be written"),
            database.read() as connection,
        ):
            connection.execute(update(tables.organization).values(name="x"))

    def test_forty_readers_at_once_do_not_wait_for_each_other(self, database: Database) -> None:
        barrier = threading.Barrier(40, timeout=PATIENCE_S)
        met: list[int] = []

        def read() -> None:
            with database.read() as connection:
                connection.execute(select(tables.organization)).all()
                met.append(barrier.wait())

        threads = [threading.Thread(target=read) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(met) == 40


class TestWriters:
    def test_writers_of_many_threads_take_turns(self, database: Database) -> None:
        with database.write() as tx:
            tx.execute(insert(tables.change_version).values(topic="note", project_id=0, version=0))

        def work() -> None:
            row = tables.change_version.c
            for _ in range(50):
                with database.write() as tx:
                    version = tx.connection.scalar(select(row.version).where(row.topic == "note"))
                    tx.execute(
                        update(tables.change_version).where(row.topic == "note").values(version=version + 1)
                    )

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with database.read() as connection:
            assert connection.scalar(select(tables.change_version.c.version)) == 200

    def test_a_turn_that_does_not_come_is_an_error(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(locks, "WRITE_TIMEOUT_S", 0.01)
        refused: list[str] = []

        def work() -> None:
            try:
                with database.write():
                    pass
            except DatabaseBusyError as error:
                refused.append(str(error))

        with database.write():
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        assert len(refused) == 1
        assert "locked by another thread" in refused[0]

    def test_a_lock_held_by_another_process_is_an_error_after_the_time_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite.connections, "BUSY_TIMEOUT_S", 0.01)
        database = Database.open(tmp_path / "busy.db")
        other = sqlite3.connect(tmp_path / "busy.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseBusyError, match="locked by another writer"), database.write():
            pytest.fail("the block must not run")
        other.execute("ROLLBACK")
        with database.write() as tx:
            add_organization(tx, "a")
        other.close()
        database.dispose()

    def test_a_full_disk_fails_the_transaction_and_not_the_database(self, file: Database) -> None:
        with file.write() as tx:
            pages = tx.connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            tx.connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 1}")
        with pytest.raises(DatabaseFullError, match="disk is full"), file.write() as tx:
            tx.execute(insert(tables.organization).values(id="a", name="x" * 100_000, created_at=NOW))
        assert names(file) == []
        with file.write() as tx:
            tx.connection.exec_driver_sql("PRAGMA max_page_count=1000000")
            add_organization(tx, "b")
        assert names(file) == ["b"]

    def test_an_error_of_a_statement_stays_what_it_is(self, database: Database) -> None:
        with pytest.raises(DBAPIError, match=r"no such table|does not exist"), database.read() as connection:
            connection.exec_driver_sql("SELECT * FROM nowhere")


class TestOpening:
    def test_a_file_that_is_no_database_is_named_in_one_line(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.txt"
        path.write_text("These are notes, not a database.\n" * 100)
        with pytest.raises(DatabaseUnreadableError) as caught:
            Database.open(path)
        assert str(caught.value) == f"{path} is not a database"

    def test_a_folder_that_does_not_exist(self, tmp_path: Path) -> None:
        with pytest.raises(DatabaseUnreadableError, match="cannot be opened"):
            Database.open(tmp_path / "missing" / "hoglab.db")

    def test_an_address_of_another_engine(self) -> None:
        with pytest.raises(UnsupportedDatabaseError, match="mysql"):
            Database.open("mysql://localhost/hoglab")

    def test_a_server_that_does_not_answer_is_named_without_its_password(self, tmp_path: Path) -> None:
        with pytest.raises(DatabaseUnreachableError) as caught:
            Database.open(f"postgresql://hoglab:hush@/flags?host={tmp_path}")
        text = str(caught.value)
        assert text.startswith(f"the PostgreSQL database flags on {tmp_path} cannot be reached: ")
        assert "\n" not in text
        assert "hush" not in text

    def test_an_address_that_cannot_be_understood_is_not_repeated(self) -> None:
        with pytest.raises(UnsupportedDatabaseError, match="not understood") as caught:
            Database.open("postgresql://hoglab:hush@/flags?sslmod=require")
        assert "hush" not in str(caught.value)


class TestChanges:
    def test_listeners_hear_of_a_change_once_after_it_is_visible(self, database: Database) -> None:
        heard: list[tuple[int, list[str], int]] = []

        def listener(project_id: int) -> None:
            heard.append((project_id, names(database), database.changes.version("project", project_id)))

        database.changes.subscribe("project", listener)
        with database.write() as tx:
            add_organization(tx, "a")
            tx.changed("project", 3)
            tx.changed("project", 3)
            tx.changed("flags", 3)
            assert heard == []
        assert heard == [(3, ["a"], 1)]
        with database.write() as tx:
            tx.changed("project", 3)
        assert heard[1:] == [(3, ["a"], 2)]
        assert database.changes.version("flags", 3) == 1
        assert database.changes.version("project", 4) == 0

    def test_a_writer_goes_on_when_everybody_knows_even_if_a_refresh_was_faster(
        self, database: Database
    ) -> None:
        told, going_on = threading.Event(), threading.Event()
        heard: list[threading.Thread] = []

        def listener(_project_id: int) -> None:
            heard.append(threading.current_thread())
            told.set()
            if threading.current_thread() is refresher:
                assert going_on.wait(10)

        publish = database.changes.publish

        def after_a_refresh(committed: Any) -> None:
            refresher.start()
            assert told.wait(10)
            publish(committed)

        refresher = threading.Thread(target=database.refresh_changes)
        database.changes.subscribe("project", listener)
        database.changes.publish = after_a_refresh  # type: ignore[method-assign]
        with database.write() as tx:
            tx.changed("project", 3)
        assert heard == [refresher, threading.current_thread()]
        going_on.set()
        refresher.join()

    def test_a_listener_may_write(self, database: Database) -> None:
        def listener(project_id: int) -> None:
            with database.write() as tx:
                add_organization(tx, f"from {project_id}")

        database.changes.subscribe("flags", listener)
        with database.write() as tx:
            tx.changed("flags", 5)
        assert names(database) == ["from 5"]

    @pytest.mark.logs_exceptions
    def test_a_broken_listener_disturbs_nobody(self, database: Database) -> None:
        heard: list[int] = []

        def broken(project_id: int) -> None:
            raise RuntimeError("broken")

        database.changes.subscribe("flags", broken)
        database.changes.subscribe("flags", heard.append)
        with database.write() as tx:
            tx.changed("flags", 5)
        assert heard == [5]

    def test_unsubscribing(self, database: Database) -> None:
        heard: list[int] = []
        stop = database.changes.subscribe("flags", heard.append)
        stop()
        stop()
        with database.write() as tx:
            tx.changed("flags", 5)
        assert heard == []

    def test_an_unknown_topic_is_a_mistake(self, database: Database) -> None:
        with pytest.raises(ValueError, match="unknown topic 'flgs'"):
            database.changes.subscribe("flgs", print)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="unknown topic"), database.write() as tx:
            tx.changed("flgs", 1)  # type: ignore[arg-type]

    def test_the_queue_database_has_no_topics(self, queue_database: Database) -> None:
        with pytest.raises(ValueError, match="no change versions"), queue_database.write() as tx:
            tx.changed("flags", 1)

    def test_changes_of_another_process_are_learned_by_asking(self, tmp_path: Path) -> None:
        here, there = Database.open(tmp_path / "shared.db"), Database.open(tmp_path / "shared.db")
        heard: list[int] = []
        here.changes.subscribe("keys", heard.append)
        with there.write() as tx:
            tx.changed("keys", 2)
        assert here.changes.version("keys", 2) == 0
        assert here.refresh_changes() == 1
        assert here.changes.version("keys", 2) == 1
        assert here.refresh_changes() == 0
        assert heard == [2]
        here.dispose()
        there.dispose()


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("created_at", 2**62),
        ("created_at", -(2**62)),
        ("created_at", b"\xff"),
        ("created_at", "yesterday"),
        ("settings", "{"),
        ("settings", b"\xff"),
    ],
)
def test_cells_that_nobody_wrote_are_told_as_damage(
    file: Database, tmp_path: Path, column: str, cell: object
) -> None:
    with file.write() as tx:
        add_organization(tx, "o")
        tx.execute(
            insert(tables.project).values(
                uuid="u", organization_id="o", name="n", api_token="t", test_account_filters=[],
                experiment_defaults={}, settings={}, created_at=NOW, updated_at=NOW,
            )
        )  # fmt: skip
    with sqlite3.connect(tmp_path / "hoglab.db") as raw:
        raw.execute(f"UPDATE project SET {column} = ?", (cell,))  # noqa: S608 - names of ours
    raw.close()
    with pytest.raises(DatabaseUnreadableError, match="damaged"), file.read() as connection:
        connection.execute(select(tables.project)).all()


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC)))  # noqa: DTZ001
def test_moments_survive_the_way_to_microseconds_and_back(moment: datetime) -> None:
    assert from_micros(to_micros(moment)) == moment


def _open_and_add(path: Path, key: str) -> None:
    database = Database.open(path)
    with database.write() as tx:
        add_organization(tx, key)
    database.dispose()


def test_processes_that_open_an_empty_directory_together_agree(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    path = tmp_path / "hoglab.db"
    processes = [context.Process(target=_open_and_add, args=(path, str(number))) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    database = Database.open(path)
    assert names(database) == ["0", "1", "2"]
    database.dispose()


def test_a_file_is_opened_that_another_process_begins_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite itself does not wait for it, however long the busy timeout is."""
    path = tmp_path / "hoglab.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            other.execute("COMMIT")

    monkeypatch.setattr(
        connections, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: float(len(pauses)))
    )
    connections.connect(path, MetaData()).close()
    assert len(pauses) == 3
    other.execute("BEGIN IMMEDIATE")
    with closing(connections.connect(path, MetaData())) as again:  # the mode is kept, so that nobody waits
        assert again.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    other.close()


def test_a_file_that_stays_locked_is_told_as_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hoglab.db"
    moments = iter(range(0, 10_000, 7))
    fast = SimpleNamespace(sleep=lambda _: None, monotonic=lambda: float(next(moments)))
    monkeypatch.setattr(connections, "time", fast)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseBusyError):
            connections.connect(path, MetaData())


@pytest.mark.parametrize("damage", [b"\xa0", b"\x00", b"x"])
def test_a_schema_that_is_damaged_is_told_as_damage(file: Database, tmp_path: Path, damage: bytes) -> None:
    file.dispose()
    path = tmp_path / "hoglab.db"
    written = path.read_bytes()
    assert b"PRIMARY KEY (" in written
    path.write_bytes(written.replace(b"PRIMARY KEY (", b"PRIMARY" + damage + b"KEY ("))
    with pytest.raises(DatabaseUnreadableError, match=r"hoglab\.db is damaged"):
        Database.open(path)
