"""Moving to PostgreSQL, ClickHouse and Kafka, and back: wherever it is cut off, everything arrives, once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from tests.embedded import EmbeddedEventLog, EmbeddedEventStore
from tests.kafka import new_topic
from tests.postgres import PostgresServer
from tests.storage.event_rows import event_row
from tests.storage.test_moving import row_of

from hoglab.storage.database import Database, tables
from hoglab.storage.database.errors import DatabaseMovedError
from hoglab.storage.directory import DataDirectory
from hoglab.storage.engines import upgrade_databases
from hoglab.storage.event_store import EventBatch, PersonOverride
from hoglab.storage.identity import PEOPLE_STAGE
from hoglab.storage.invocations.holding import DISPATCHING
from hoglab.storage.moving import Location, Moved, MoveError, cancel, move
from hoglab.storage.moving.clickhouse_events import database_place
from hoglab.storage.moving.duckdb_events import file_place
from hoglab.storage.moving.events import placed
from hoglab.storage.moving.log import RecordFormat, rest_in_topic
from hoglab.storage.moving.places import directory_place, make_room, server_place, topic_place

DONE, LAST = 30, 34
"""The offset up to which the log is ingested, and its end; records behind that wait for an offset."""
PARTITIONS = 3
NOW = datetime(2026, 3, 1, tzinfo=UTC)
WAITING = [b"%d" % number for number in range(DONE + 1, LAST + 1)] + [b"deferred"]


def nothing(_what: str, _rows: int, _every: int) -> None:
    """What is told is not looked at."""


def divide(payload: bytes, partitions: int, _most: int) -> list[tuple[int, bytes]]:
    return [(payload[-1] % partitions, payload)]


FORMAT = RecordFormat(divide, lambda payload: payload[-1] % 2)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DataDirectory]:
    """A directory that a server left behind: events, merges, a log that is not ingested to its end."""
    with DataDirectory.open(tmp_path / "data", create=True) as directory:
        home = {"id": 1, "installation_id": "i", "generation": 1, "starts": 4}
        fill(
            directory.metadata_path,
            tables.metadata,
            (tables.installation, home),
            (tables.ingestion_progress, {"stage": PEOPLE_STAGE, "log_offset": DONE}),
        )
        with closing(EmbeddedEventLog(directory.queue_path)) as log:
            for number in range(1, LAST + 1):
                asyncio.run(log.append(b"%d" % number))
        deferred = {"id": 1, "owner": 1, "appended_at": NOW, "payload": WAITING[-1]}
        position = {"consumer": DISPATCHING, "offset": DONE, "updated_at": NOW}
        quarantined = {
            "offset": 7, "reason": "r", "size": 1, "quarantined_at": NOW, "is_replaying": False, "payload": b"7",
        }  # fmt: skip
        fill(
            directory.queue_path,
            tables.queue_metadata,
            (tables.queue_installation, {**home, "seen_changes": 0}),
            (tables.deferred_record, deferred),
            (tables.consumer_position, position),
            (tables.quarantined_record, quarantined),
        )
        store = EmbeddedEventStore(directory.events_path, memory="200MB")
        rows = [event_row(1 + number % (DONE - 1), uuid=UUID(int=number + 1)) for number in range(2 * DONE)]
        merged = [PersonOverride(1, UUID(int=2), UUID(int=3))]
        store.append(EventBatch(rows, merged, is_checked=True), log_offset=DONE - 1)
        correction = event_row(DONE, uuid=rows[7].uuid, properties=b'{"plan":"free"}')
        assert store.append(EventBatch([correction]), log_offset=DONE) == []
        store.set_identity("i", 1, 4)
        store.close()
        yield directory


def fill(path: Path, metadata: sa.MetaData, *rows: tuple[sa.Table, dict[str, Any]]) -> None:
    database = Database.open(path, metadata, moving=True)
    with database.write() as tx:
        for table, row in rows:
            tx.execute(sa.insert(table).values(row))
    database.dispose()


@dataclass(frozen=True)
class Places:
    """Where everything may be; ``server`` has the events in the directory's file."""

    files: Location
    server: Location
    cluster: Location
    directory: DataDirectory

    def back(self, told: Callable[[str, int, int], object] = nothing) -> Moved:
        """Move from the cluster into the directory."""
        make_room(self.directory, self.cluster, events=True)
        return move(self.cluster, self.files, told, FORMAT)


def _prepare(url: str) -> None:
    upgrade_databases(url)


@pytest.fixture
def prepared_url(postgres: PostgresServer) -> Iterator[str]:
    """The address of a database that has its tables."""
    url = postgres.database(postgres.template("moving", _prepare))
    yield url
    postgres.drop(url)


@pytest.fixture
def places(directory: DataDirectory, prepared_url: str, events_url: str, kafka: str) -> Places:
    topic = topic_place(f"kafka://{kafka}/{new_topic()}?partitions={PARTITIONS}")
    events = database_place(events_url, PARTITIONS, lambda _, who: len(who) % PARTITIONS)
    files = replace(directory_place(directory), events=file_place(directory.events_path))
    server = replace(server_place(prepared_url), events=files.events)
    return Places(files, server, replace(server, events=events, topic=topic), directory)


def events_in(place: Location) -> list[Any]:
    assert place.events is not None
    with place.events.opened() as events:
        stored = [placed(row) for part in events.in_order(1) for row in part]
        corrections = list(events.corrections())
        assert len(corrections) == 1
        return [stored, events.merges(), corrections]


def in_topic(place: Location) -> list[bytes]:
    assert place.topic is not None
    with place.topic.opened() as log:
        return [record.payload for _, record in rest_in_topic(log, {})]


def queue(place: Location, column: Any) -> list[Any]:
    with place.opened() as opened, opened.queue.read() as connection:
        return list(connection.scalars(sa.select(column).order_by(column)))


def ingest(place: Location, *payloads: bytes) -> None:
    """What processes do that ingest all that waits, and are stopped when more has come."""
    assert place.topic is not None
    with place.topic.opened() as log, place.opened() as opened:
        with opened.queue.write() as tx:
            for number, end in log.ends().items():
                row = {"partition": number, "epoch": 1, "expires_at": NOW, "position": end}
                tx.execute(sa.insert(tables.log_lease).values(row))
            tx.execute(sa.update(tables.event_log_head).values(last_offset=100))
        for payload in payloads:
            asyncio.run(log.append_all(divide(payload, PARTITIONS, 0), insist=True))


def check_whole(place: Location, moved: Moved) -> None:
    """The cluster has everything."""
    assert moved.events is not None
    assert (moved.events.events, moved.events.different) == (2 * DONE, {})
    assert moved.records == len(WAITING)
    by_partition = sorted(WAITING, key=lambda each: each[-1] % PARTITIONS)
    assert in_topic(place) == by_partition
    assert queue(place, tables.event_log_record.c.offset) == []
    assert queue(place, tables.deferred_record.c.id) == []
    assert queue(place, tables.consumer_position.c.consumer) == []
    assert queue(place, tables.quarantined_record.c.offset) == [7]
    assert queue(place, tables.event_log_head.c.last_offset) == [2 * DONE + 1], "above all places and offsets"
    check_generation(place, 2)


def check_generation(place: Location, expected: int) -> None:
    assert place.events is not None
    with place.opened() as opened, place.events.opened() as events:
        home = opened.home()
        assert home is not None
        assert (home["move"], home["generation"]) == (None, expected)
        assert events.identity() == ("i", expected, 4)
    assert queue(place, tables.queue_installation.c.generation) == [expected]


@pytest.mark.parametrize("by_way_of_postgres", [False, True])
def test_there_and_back_everything_is_there(places: Places, *, by_way_of_postgres: bool) -> None:
    before = events_in(places.files)
    start = places.files
    if by_way_of_postgres:
        assert move(places.files, places.server, nothing).events is None
        start = places.server
    check_whole(places.cluster, move(start, places.cluster, nothing, FORMAT))
    assert events_in(places.cluster) == before
    assert events_in(places.files) == before, "nothing was taken away"
    if not by_way_of_postgres:
        assert queue(places.files, tables.event_log_record.c.offset)[-1] == LAST
        with pytest.raises(DatabaseMovedError, match="was moved to the PostgreSQL database"):
            Database.open(places.directory.metadata_path)
    # Of what stays behind no server makes use, nor another move.
    with pytest.raises(MoveError, match=r"the events in .* are not those of the PostgreSQL database"):
        move(replace(places.server), places.files, nothing, FORMAT)

    ingest(places.cluster, b"late 1", b"late 2")
    back = places.back()
    assert back.events is not None
    assert (back.events.events, back.records) == (2 * DONE, 2)
    assert events_in(places.files) == before
    check_generation(places.files, 3)
    assert queue(places.files, tables.event_log_record.c.offset) == [101, 102]
    assert queue(places.files, tables.event_log_record.c.owner) == [0, 1]
    assert queue(places.files, tables.consumer_position.c.offset) == [100]
    assert places.files.events is not None
    with places.files.events.opened() as events:
        assert events.position() == 100
    with closing(EmbeddedEventLog(places.directory.queue_path)) as log:
        assert asyncio.run(log.append(b"new")) == 103
    aside = [path.name for path in places.directory.path.glob("set-aside-*/*")]
    assert {"hoglab.db", "queue.db", "events.duckdb"} <= set(aside)


@pytest.mark.parametrize("within", [False, True])
def test_a_move_that_was_cut_off_goes_on(
    places: Places, monkeypatch: pytest.MonkeyPatch, *, within: bool
) -> None:
    """There, cut off before each of its later steps in turn; and back in the middle."""
    start = places.files
    if within:
        move(places.files, places.server, nothing)
        start = places.server
    steps = ["copy_events", "MovedLog.move", "MovedLog.settle"]
    for step in steps:
        with monkeypatch.context() as patch:
            patch.setattr(f"hoglab.storage.moving.parts.{step}", _cut)
            with pytest.raises(ZeroDivisionError):
                move(start, places.cluster, nothing, FORMAT)
        with pytest.raises(DatabaseMovedError, match="is being moved to"):
            Database.open(start.metadata)
        if not within:
            with pytest.raises(DatabaseMovedError, match="is not whole"):
                Database.open(places.cluster.metadata)
    if within:
        with pytest.raises(MoveError, match="run the move again to finish it"):
            cancel(start)
    with monkeypatch.context() as patch:
        patch.setattr("hoglab.storage.moving.location.Opened.set_home", _cut)
        with pytest.raises(ZeroDivisionError):
            move(start, places.cluster, nothing, FORMAT)
    moved = move(start, places.cluster, nothing, FORMAT)
    if within:
        assert moved.events is None, "it was all there, and compared"
    else:
        check_whole(places.cluster, moved)
    check_generation(places.cluster, 2)
    assert len(in_topic(places.cluster)) == len(WAITING)
    if within:
        return
    ingest(places.cluster, b"late")
    for step in ("move_events", "settle"):
        with monkeypatch.context() as patch:
            patch.setattr(f"hoglab.storage.moving.parts.Parts.{step}", _cut)
            with pytest.raises(ZeroDivisionError):
                places.back()
    assert places.back().records == 1
    check_generation(places.files, 3)


def _cut(*_: object, **__: object) -> None:
    raise ZeroDivisionError


def test_what_was_appended_before_the_end_is_not_appended_again(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between two appends to the topic."""
    monkeypatch.setattr("hoglab.storage.moving.log.APPENDED_RECORDS", 2)
    appended: list[Any] = []
    real = asyncio.run

    def run(appending: Any) -> None:
        if appended:
            appending.close()
            raise ZeroDivisionError
        appended.append(real(appending))

    monkeypatch.setattr("hoglab.storage.moving.log.asyncio.run", run)
    with pytest.raises(ZeroDivisionError):
        move(places.files, places.cluster, nothing, FORMAT)
    assert len(in_topic(places.cluster)) == 2
    monkeypatch.setattr("hoglab.storage.moving.log.asyncio.run", real)
    check_whole(places.cluster, move(places.files, places.cluster, nothing, FORMAT))


def test_what_cannot_be_moved_is_refused_in_words(places: Places) -> None:
    files, cluster = places.files, places.cluster
    with files.opened() as opened:
        progress = sa.update(tables.ingestion_progress)
        with opened.database.write() as tx:
            tx.execute(progress.values(log_offset=DONE + 1))
        with pytest.raises(MoveError, match=r"in the middle of a batch .* start it once more, and stop it"):
            move(files, cluster, nothing, FORMAT)
        with opened.database.write() as tx:
            tx.execute(progress.values(log_offset=DONE))
    with files.opened() as opened, opened.database.write() as tx:
        for table in (tables.organization, tables.project):
            tx.execute(sa.insert(table).values(row_of(table, 1)))
        waiting = row_of(tables.person_erasure, 1) | {"finished_at": None}
        tx.execute(sa.insert(tables.person_erasure).values(waiting))
    with pytest.raises(MoveError, match="1 persons wait to be erased"):
        move(files, cluster, nothing, FORMAT)
    with files.opened() as opened, opened.database.write() as tx:
        tx.execute(sa.update(tables.person_erasure).values(finished_at=NOW))
    with pytest.raises(MoveError, match="an event log in Kafka goes with events in ClickHouse"):
        move(files, replace(cluster, events=files.events), nothing, FORMAT)

    assert cluster.topic is not None
    with cluster.topic.opened() as log:
        asyncio.run(log.append_all([(0, b"foreign")], insist=True))
    with pytest.raises(MoveError, match="the topic has other records"):
        move(files, cluster, nothing, FORMAT)
    cancel(files)
    Database.open(places.directory.metadata_path).dispose()
    with pytest.raises(MoveError, match="has events already"):
        move(files, cluster, nothing, FORMAT)


def test_a_log_is_looked_for_where_it_is(places: Places) -> None:
    with pytest.raises(MoveError, match="has everything already"):
        move(places.server, places.server, nothing, FORMAT)
    move(places.files, places.cluster, nothing, FORMAT)
    with pytest.raises(MoveError, match="is not in this topic"):
        places.back()
    ingest(places.cluster)
    with pytest.raises(MoveError, match="is in Kafka: name it with --event-log"):
        move(replace(places.cluster, topic=None), places.files, nothing, FORMAT)
    with places.cluster.opened() as opened, opened.queue.write() as tx:
        tx.execute(sa.update(tables.log_lease).values(begun_last=99, begun_shift=0))
    with pytest.raises(MoveError, match="in the middle of a batch"):
        places.back()
