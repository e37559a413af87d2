"""Events on their way between DuckDB and ClickHouse: all of them, once, as they were, wherever the way is cut off."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.clickhouse import ClickHouseServer
from tests.storage.event_rows import NOW, event_row
from tests.storage.event_stores import append, query

from hoglab.storage.event_store import EventBatch, EventRow, PersonOverride
from hoglab.storage.event_store.duckdb import DuckDbEventStore
from hoglab.storage.event_store.sealed.sealing import SealingLimits
from hoglab.storage.moving import Location, MoveError, estimates
from hoglab.storage.moving import events as moving
from hoglab.storage.moving.clickhouse_events import BOUNDED, MENDED, ClickHouseEvents, database_place
from hoglab.storage.moving.duckdb_events import DuckDbEvents, file_place
from hoglab.storage.moving.events import (
    Correction,
    EventsPlace,
    MovingEvents,
    compare_events,
    copy_corrections,
    copy_events,
    in_utc,
    placed,
)

PARTITIONS = 3


def partition_of(project_id: int, distinct_id: str) -> int:
    return (project_id + len(distinct_id)) % PARTITIONS


def nothing(_what: str, _rows: int, _every: int) -> None:
    """What is told is not looked at."""


def rows() -> list[EventRow]:
    """Events of two projects, some late, with whatever texts there are; two of each record."""
    made = []
    for number in range(60):
        text = ("plain", "é\N{SNOWMAN}\N{PILE OF POO}", "a\0b", "'\\\"\n\t")[number % 4]
        made.append(
            event_row(
                1 + number // 2,
                uuid=UUID(int=number % 5 + 1),  # shared by events of other names, people and days
                project_id=1 + number % 2,
                event=text,
                distinct_id=f"{text}-{number % 7}",
                timestamp=NOW - timedelta(days=17 * (number % 5), microseconds=number),
                captured_at=NOW + timedelta(microseconds=number),
                properties=b'{"a":1.0,"n":"\\u0000","t":"\xe2\x98\x83"}',
                person_id=None if number % 3 == 0 else UUID(int=number % 7 + 1),
                person_created_at=None if number % 3 == 0 else datetime(1999, 1, 1, tzinfo=UTC),
                person_mode="propertyless" if number % 3 == 0 else "full",
                elements_chain=text,
                groups={} if number % 2 else {0: text, 4: "g"},
                feature_flag=None if number % 2 else "flag",
                feature_flag_response=None if number % 2 else text,
                session_id=text if number % 2 else None,
            )
        )
    return made


@pytest.fixture
def file(tmp_path: Path) -> EventsPlace:
    """Events in a file: the first are sealed, some are erased, one person was merged."""
    path = tmp_path / "events.duckdb"
    store = DuckDbEventStore(path, memory="200MB")
    store.append(
        EventBatch(rows(), [PersonOverride(1, UUID(int=2), UUID(int=3))], is_checked=True), log_offset=30
    )
    assert store.seal(SealingLimits(busy_rows=1, idle_rows=1, recent_rows=20), is_idle=True)
    store.set_identity("i", 1, 4)
    store.close()
    return file_place(path)


@pytest.fixture
def database(clickhouse: ClickHouseServer) -> Iterator[EventsPlace]:
    url = clickhouse.database()
    yield database_place(url, PARTITIONS, partition_of)
    clickhouse.drop(url)


def contents(events: MovingEvents) -> list[moving.PlacedEvent]:
    """All events in order."""
    return [placed(row) for part in events.in_order(1) for row in part]


def arrive(old: MovingEvents, new: MovingEvents) -> moving.MovedEvents:
    written = copy_events(old, new, nothing)
    new.settle(old.position(), old.next_seq(), old.merges())
    return compare_events(old, new, written, nothing)


def test_there_and_back_every_event_is_the_same(
    file: EventsPlace, database: EventsPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "BATCH_ROWS", 7)
    monkeypatch.setattr("hoglab.storage.moving.clickhouse_events.SORTED_PLACES", 25)
    back = file_place(tmp_path / "back.duckdb")
    with file.opened() as old, database.opened() as new, back.opened() as again:
        before = contents(old)
        assert [seq for seq, _ in before] == list(range(1, 61))
        moved = arrive(old, new)
        assert (moved.events, moved.written, moved.different) == (60, 60, {})
        assert moved.days == len({(each.project_id, each.timestamp.date()) for _, each in before})
        assert contents(new) == before
        assert (new.position(), new.next_seq(), new.merges()) == (30, 61, old.merges())
        assert arrive(new, again).written == 60
        assert contents(again) == before
        assert (again.position(), again.next_seq(), again.merges()) == (30, 61, old.merges())
    assert [seq for seq, _ in before] == list(range(1, 61))
    # Whoever works with either from now on knows what is there.
    store = DuckDbEventStore(tmp_path / "back.duckdb", memory="200MB")
    assert append(store, *(replace(each, log_offset=31) for each in rows())) == set()
    store.close()


def test_events_that_are_sent_again_are_known_where_they_would_come_now(
    file: EventsPlace, database: EventsPlace, tmp_path: Path
) -> None:
    from hoglab.storage.event_store.clickhouse.store import ClickHouseEventStore

    with file.opened() as old, database.opened() as new:
        arrive(old, new)
        assert isinstance(new, ClickHouseEvents)
        url = new.url
    store = ClickHouseEventStore(url, tmp_path / "keys", memory="200MB", query_timeout_s=60)
    for number in range(PARTITIONS):
        assert store.position(number) == 30
    ours = [each for each in rows() if partition_of(each.project_id, each.distinct_id) == 2]
    again = [replace(each, log_offset=31, log_partition=2) for each in ours]
    new_one = event_row(31, distinct_id="another", log_partition=2)
    stored = append(store, *again, new_one, log_partition=2, first_seq=70)
    assert stored == {new_one.uuid}
    store.close()


CHANGES = (
    "SELECT project_id, timestamp, old_seq, seq, first_seq, log_offset FROM event_correction ORDER BY 1, 3"
)


@pytest.fixture
def corrected(tmp_path: Path) -> EventsPlace:
    """Events in a file of which many were corrected, some twice, and one that is older than ClickHouse can say."""
    path = tmp_path / "corrected.duckdb"
    store = DuckDbEventStore(path, memory="200MB")
    old = datetime(1850, 1, 1, 5, tzinfo=UTC)
    events = [*rows(), event_row(30, uuid=UUID(int=99), timestamp=old)]
    store.append(EventBatch(events, is_checked=True), log_offset=30)
    assert store.seal(SealingLimits(busy_rows=1, idle_rows=1, recent_rows=20), is_idle=True)
    for offset, some in ((31, events[::3]), (32, events[::5])):
        again = [replace(event, log_offset=offset, properties=b'{"v":%d}' % offset) for event in some]
        assert append(store, *again) == set()
    assert len(query(store, CHANGES)) == len(events[::3]) + len(events[::5])
    store.set_identity("i", 1, 4)
    store.close()
    return file_place(path)


@pytest.mark.parametrize("is_cut_off", [False, True])
def test_there_and_back_what_was_corrected_is_known(
    corrected: EventsPlace,
    database: EventsPlace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_cut_off: bool,
) -> None:
    from hoglab.storage.event_store.clickhouse.store import ClickHouseEventStore

    monkeypatch.setattr("hoglab.storage.moving.clickhouse_events.BATCH_ROWS", 7)
    monkeypatch.setattr("hoglab.storage.moving.duckdb_events.READ_ROWS", 7)
    back = file_place(tmp_path / "back.duckdb")
    with corrected.opened() as old, database.opened() as new, back.opened() as again:
        expected = list(old.corrections())
        for here, there in ((old, new), (new, again)):
            if is_cut_off:
                with pytest.raises(ZeroDivisionError):
                    there.write_corrections(cut_after(expected, 20))
            copy_corrections(here, there)
        kept = [(row[0], new.kept_moment(row[1]), *row[2:]) for row in expected]
        assert list(new.corrections()) == list(again.corrections()) == kept
        assert kept != expected
        assert isinstance(new, ClickHouseEvents)
        url = new.url
    file = DuckDbEventStore(tmp_path / "back.duckdb", memory="200MB")
    server = ClickHouseEventStore(url, tmp_path / "keys", memory="200MB", query_timeout_s=60)
    asked = [
        [(row[0], in_utc(row[1]), *row[2:]) for row in query(store, CHANGES)] for store in (file, server)
    ]
    assert asked == [kept, kept]
    file.close()
    server.close()


def cut_after(corrections: list[Correction], count: int) -> Iterator[Correction]:
    yield from corrections[:count]
    raise ZeroDivisionError


def test_one_correction_that_differs_is_noticed(
    corrected: EventsPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with corrected.opened() as old, file_place(tmp_path / "other.duckdb").opened() as new:
        every = list(old.corrections())
        write = new.write_corrections
        for wrong in (every[:-1], every[1:], [*every[:-1], (*every[-1][:-1], 7)]):
            monkeypatch.setattr(new, "write_corrections", lambda _, wrong=wrong: write(wrong))
            with pytest.raises(MoveError, match="corrections of events are not the same"):
                copy_corrections(old, new)


@pytest.mark.parametrize("cut_at", ["before", "within", "behind"])
def test_a_copy_that_was_cut_off_goes_on(
    file: EventsPlace, database: EventsPlace, monkeypatch: pytest.MonkeyPatch, cut_at: str
) -> None:
    """Before anything of a batch was written, between two inserts of one, and before its end is noted."""
    monkeypatch.setattr(moving, "BATCH_ROWS", 9)
    calls = {"before": ("insert", 5), "within": ("insert", 6), "behind": ("_note", 2)}[cut_at]
    with file.opened() as old:
        with database.opened() as new:
            assert isinstance(new, ClickHouseEvents)
            place = new if calls[0] == "_note" else new.connection
            real, left = getattr(place, calls[0]), [calls[1]]

            def cut(*arguments: object) -> None:
                left[0] -= 1
                if not left[0]:
                    raise ZeroDivisionError
                real(*arguments)

            monkeypatch.setattr(place, calls[0], cut)
            with pytest.raises(ZeroDivisionError):
                copy_events(old, new, nothing)
            there = new.count()
        with database.opened() as new:
            assert 0 < new.count() == there < 60
            arrive(old, new)
            assert contents(new) == contents(old)


def test_what_cannot_be_kept_is_told(tmp_path: Path, database: EventsPlace) -> None:
    path = tmp_path / "odd.duckdb"
    store = DuckDbEventStore(path, memory="200MB")
    append(
        store,
        event_row(1, timestamp=datetime(1850, 1, 1, tzinfo=UTC)),
        event_row(2, person_created_at=datetime(2400, 1, 1, tzinfo=UTC)),
        event_row(3, properties=b'{"a":1e999}'),
        event_row(4),
    )
    store.close()
    with file_place(path).opened() as old, database.opened() as new:
        assert arrive(old, new).different == {BOUNDED: 2, MENDED: 1}
        assert [each for _, each in contents(new)] == [new.kept(each)[0] for _, each in contents(old)]


def test_one_event_that_differs_is_noticed(file: EventsPlace, tmp_path: Path) -> None:
    with file.opened() as old, file_place(tmp_path / "other.duckdb").opened() as new:
        every = contents(old)
        seq, event = every[33]
        every[33] = (seq, replace(event, properties=event.properties + b" "))
        new.add(every)
        with pytest.raises(MoveError, match=f"first of project {event.project_id} on .* here, .* there"):
            compare_events(old, new, 0, nothing)


def test_batches_are_bounded_by_the_size_of_texts(
    file: EventsPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    with file.opened() as old, file_place(tmp_path / "other.duckdb").opened() as new:
        assert isinstance(new, DuckDbEvents)
        size = sum(map(moving.size_of, contents(old)))
        monkeypatch.setattr(moving, "BATCH_BYTES", size // 6)
        monkeypatch.setattr(new, "add", lambda batch: sizes.append(len(batch)))
        assert copy_events(old, new, nothing) == 60
    assert len(sizes) == 6
    assert max(sizes) <= 11


def test_the_estimate_of_events_has_all_of_them(file: EventsPlace, tmp_path: Path) -> None:
    here = Location(tmp_path / "hoglab.db", tmp_path / "queue.db", "here", file)
    there = Location(here.metadata, here.queue, "there", file_place(tmp_path / "other.duckdb"))
    [estimated] = estimates(here, there)
    with file.opened() as events:
        size = sum(map(moving.size_of, contents(events)))
    assert (estimated.table, estimated.rows, estimated.size) == ("events", 60, size)
    assert estimated.seconds > 0
    assert not (tmp_path / "other.duckdb").exists()
