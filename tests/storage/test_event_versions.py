"""Versions of events: a plain oracle of identity beside each engine, with replays and attempts that are cut off."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.clickhouse import ClickHouseServer
from tests.storage.event_rows import NOW, event_row
from tests.storage.event_stores import ClickHouseStores, DuckDbStores, Stores, append, query
from tests.waiting import PATIENCE_S

from hoglab.storage.event_store import (
    EventBatch,
    EventRow,
    EventStore,
    EventStoreUnavailableError,
    Reader,
    export,
)
from hoglab.storage.event_store.clickhouse.partition import Partition
from hoglab.storage.event_store.duckdb import DuckDbEventStore
from hoglab.storage.event_store.export import EventSelection, selected_lines
from hoglab.storage.event_store.history import TimeRange
from hoglab.storage.event_store.once import file_versions
from hoglab.storage.event_store.sealed.sealing import SealingLimits

MIDNIGHT = datetime(2026, 3, 1, tzinfo=UTC)
AT_ONCE = SealingLimits(segment_rows=6, busy_rows=1, idle_rows=1, recent_rows=0)


@pytest.fixture(params=["duckdb", pytest.param("clickhouse", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest) -> Any:
    return request.param if request.param == "duckdb" else request.getfixturevalue("clickhouse")


def stores_of(engine: Any, folder: Path) -> Stores:
    folder.mkdir()
    return DuckDbStores(folder) if engine == "duckdb" else ClickHouseStores(engine, folder)


# -- the oracle -----------------------------------------------------------------------------------------

Key = tuple[int, UUID, Any, str, str]


@dataclass
class Oracle:
    """What should be stored, in plain words: records one after the other, events one after the other."""

    says: dict[Key, tuple[Any, ...]] = field(default_factory=dict)
    new: dict[int, list[int]] = field(default_factory=dict)
    """By records: which of their events were new."""
    arrived: dict[Key, datetime] = field(default_factory=dict)

    def take(self, offset: int, rows: list[EventRow]) -> None:
        self.new[offset] = []
        for index, row in enumerate(rows):
            key = (row.project_id, row.uuid, row.timestamp.date(), row.event, row.distinct_id)
            if key not in self.says:
                self.new[offset].append(index)
            elif is_late(row) and row.captured_at < self.arrived[key]:
                continue
            properties = orjson.loads(row.properties)
            del properties["$sent_at"]
            self.says[key] = (row.timestamp, row.elements_chain, properties)
            self.arrived[key] = row.captured_at


def is_late(row: EventRow) -> bool:
    return row.captured_at < NOW


def batch_of(rows: list[EventRow]) -> EventBatch:
    return EventBatch(rows, late=frozenset(place for place, row in enumerate(rows) if is_late(row)))


def stored(store: EventStore) -> list[tuple[Key, tuple[Any, ...]]]:
    found = query(
        store,
        "SELECT project_id, uuid, event, distinct_id, timestamp, elements_chain, whole_properties FROM stored_events",
    )
    seen = []
    for project_id, uuid, event, distinct_id, timestamp, chain, text in found:
        moment = timestamp.replace(tzinfo=UTC)
        properties = orjson.loads(text)
        del properties["$sent_at"]
        key = (project_id, UUID(str(uuid)), moment.date(), event, distinct_id)
        seen.append((key, (moment, chain, properties)))
    return sorted(seen, key=repr)


# -- what happens ---------------------------------------------------------------------------------------


@st.composite
def some_rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Events that often have the uuid of others, and often all of their identity."""
    return draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "project_id": st.sampled_from([1, 1, 1, 2]),
                    "uuid": st.sampled_from([UUID(int=7), UUID(int=7), UUID(int=8)]),
                    "event": st.sampled_from(["buy", "buy", "'é\\"]),
                    "distinct_id": st.sampled_from(["ann", "ann", "bob"]),
                    "timestamp": st.sampled_from(
                        [
                            MIDNIGHT,
                            MIDNIGHT,
                            MIDNIGHT + timedelta(hours=5),
                            MIDNIGHT - timedelta(microseconds=1),
                        ]
                    ),
                    "elements_chain": st.sampled_from(["", "", "a:"]),
                    "value": st.integers(0, 2),
                }
            ),
            max_size=4,
        )
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[list[EventRow]], list[Any]]:
    """Records with their rows, and what is done: ends of batches, and what happens between them."""
    records = []
    for offset, drawn in enumerate(draw(st.lists(some_rows(), min_size=1, max_size=8)), 1):
        rows = []
        # One in four was in quarantine, and arrived before all that never was there.
        arrived = NOW + timedelta(seconds=offset, days=-draw(st.sampled_from([0, 0, 0, 1])))
        for index, fields in enumerate(drawn):
            value = fields.pop("value")
            sent = {"v": value, "$sent_at": f"{offset}.{index}"}
            if draw(st.booleans()):
                sent = dict(reversed(sent.items()))
            fields["captured_at"] = arrived
            rows.append(event_row(offset, **fields, properties=orjson.dumps(sent)))
        records.append(rows)
    steps = draw(
        st.lists(
            st.tuples(
                st.integers(1, 3),  # records of a batch
                st.integers(0, 3),  # records before that are in it again
                st.sampled_from(["", "", "open", "seal", "cut", "cut"]),
                st.integers(0, 4),  # where an attempt is cut off
                st.integers(1, 4),  # records of that attempt
            ),
            min_size=len(records),
            max_size=len(records),
        )
    )
    return records, steps


class CutError(Exception):
    pass


def cut_off(store: Any, after: int) -> None:
    """Have the engine fail at a statement that writes, as if the process had died before it."""
    left = [after]

    def cutting(call: Any) -> Any:
        def called(*arguments: Any, **more: Any) -> Any:
            if left[0] == 0:
                raise EventStoreUnavailableError("cut off")
            left[0] -= 1
            return call(*arguments, **more)

        return called

    connection = store._connection
    connection.insert, connection.command = cutting(connection.insert), cutting(connection.command)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(histories())
def run_history(engine: Any, folder: Path, history: tuple[list[list[EventRow]], list[Any]]) -> None:
    records, steps = history
    oracle = Oracle()
    for offset, rows in enumerate(records, 1):
        oracle.take(offset, rows)
    stores = stores_of(engine, folder / str(len(list(folder.iterdir()))))
    store = stores.open()
    try:
        done = 0
        for count, again, between, after, longer in steps:
            if done == len(records):
                break
            if between == "open":
                store.close()
                store = stores.open()
            elif between == "seal" and isinstance(store, DuckDbEventStore):
                store.seal(AT_ONCE, is_idle=True)
            elif between == "cut" and not isinstance(store, DuckDbEventStore):
                cut_off(store, after)
                attempt = records[done : done + longer]
                rows = [row for record in attempt for row in record]
                try:
                    store.append(batch_of(rows), log_offset=done + len(attempt), first_seq=None)
                except EventStoreUnavailableError:
                    pass
                else:
                    done += len(attempt)
                store.close()
                store = stores.open()
            if done == len(records):
                break
            first, last = max(done - again, 0), min(done + count, len(records))
            batch = [row for record in records[first:last] for row in record]
            expected, place = [], 0
            for offset in range(first + 1, last + 1):
                expected += [place + index for index in oracle.new[offset]]
                place += len(records[offset - 1])
            assert list(store.append(batch_of(batch), log_offset=last)) == expected
            done = last
        assert stored(store) == sorted(
            [(key, said) for key, said in oracle_until(records, done).says.items()], key=repr
        )
        everything = [row for record in records[:done] for row in record]
        assert len(store.append(batch_of(everything), log_offset=done)) == len(
            oracle_until(records, done).says
        )
    finally:
        store.close()
        if isinstance(stores, ClickHouseStores):
            stores.close()


def oracle_until(records: list[list[EventRow]], done: int) -> Oracle:
    oracle = Oracle()
    for offset, rows in enumerate(records[:done], 1):
        oracle.take(offset, rows)
    return oracle


class Moving:
    """A reader behind whose back the store goes on: after some of its statements it stores what comes next."""

    def __init__(self, reader: Reader, store: EventStore, batches: list[EventRow]) -> None:
        self._reader, self._store, self._batches = reader, store, batches

    def execute(self, sql: str, parameters: Any = None, *, timeout_s: float | None = None) -> Any:
        rows = self._reader.execute(sql, parameters, timeout_s=timeout_s)
        if self._batches:
            append(self._store, self._batches.pop(0))
        return rows


def test_windows_have_each_event_once_however_often_it_is_corrected_meanwhile(
    engine: Any, tmp_path: Path
) -> None:
    """After the extent was read, between two windows, and between the statements of one."""
    uuid = {number: UUID(int=number) for number in range(1, 8)}
    offset = 1

    def version(number: int) -> EventRow:
        nonlocal offset
        offset += 1
        return event_row(offset, uuid=uuid[number], properties=b'{"v":%d}' % offset)

    stores = stores_of(engine, tmp_path / "one")
    store = stores.open()
    try:
        append(store, *(event_row(1, uuid=uuid[number]) for number in (1, 2, 3, 4, 5)))
        append(store, version(1))
        if isinstance(store, DuckDbEventStore):
            store.seal(AT_ONCE, is_idle=True)
        everything = TimeRange(1, MIDNIGHT - timedelta(days=9), MIDNIGHT + timedelta(days=9))
        with store.reader() as reader:
            extent = everything.extent(reader)
            assert extent is not None
            assert extent.count == 5
            append(store, version(2), version(1))
            offset += 1
            append(store, event_row(offset, uuid=uuid[6]))  # too late
            seen: list[int] = []
            for after in range(extent.first_seq - 1, extent.last_seq, 2):
                last = min(after + 2, extent.last_seq)
                meanwhile = [version(number) for number in (3, 2, 3, 4)]
                moving: Any = Moving(reader, store, meanwhile)
                rows = everything.window(moving, after, last, end=extent.last_seq)
                seen += [row.uuid.int for _, row in rows]
        assert sorted(seen) == [1, 2, 3, 4, 5]
    finally:
        store.close()
        if isinstance(stores, ClickHouseStores):
            stores.close()


def test_an_export_has_each_event_once_however_often_it_is_corrected_meanwhile(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the events were counted, between two parts, and after a part before its corrections are looked for."""
    monkeypatch.setattr(export, "PART_ROWS", 2)
    offset = 1

    def correct(number: int) -> None:
        nonlocal offset
        offset += 1
        append(store, event_row(offset, uuid=UUID(int=number), properties=b'{"v":%d}' % offset))

    stores = stores_of(engine, tmp_path / "one")
    store = stores.open()
    try:
        append(store, *(event_row(1, uuid=UUID(int=number)) for number in range(1, 8)))
        correct(1)
        selection = EventSelection(project_id=1)
        with store.reader() as reader, selected_lines(reader, selection, store.dialect) as (count, parts):
            meanwhile = [2, 3, 2, 7, 7, 1, 4]
            for number in meanwhile[:3]:
                correct(number)
            lines = []
            for part in parts:
                lines += part
                if len(meanwhile) > 3:
                    correct(meanwhile.pop())
        seen = [UUID(orjson.loads(line)["uuid"]).int for line in lines]
        assert count == 7
        assert sorted(seen) == [1, 2, 3, 4, 5, 6, 7]
    finally:
        store.close()
        if isinstance(stores, ClickHouseStores):
            stores.close()


@pytest.mark.slow
@pytest.mark.parametrize("is_deleted", [False, True])
def test_an_export_beside_a_correction_of_several_months_has_each_event_once(
    clickhouse: ClickHouseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    """Both versions are there until the former ones are deleted, month by month, and the position moves last."""
    stores = ClickHouseStores(clickhouse, tmp_path)
    store = stores.open()
    looked = threading.Event()

    def export_now() -> tuple[int, list[int]]:
        selection = EventSelection(project_id=1)
        with store.reader() as reader, selected_lines(reader, selection, store.dialect) as (count, parts):
            return count, sorted(UUID(orjson.loads(line)["uuid"]).int for part in parts for line in part)

    def pause(seconds: float) -> None:
        looked.set()
        sleep(seconds)

    def replace_and_look(partition: Partition, *args: Any) -> None:
        if is_deleted:
            original(partition, *args)
        exports.append(exporter.submit(export_now))
        assert looked.wait(PATIENCE_S), "the export did not wait for the batch"
        if not is_deleted:
            original(partition, *args)

    def version(offset: int, number: int) -> EventRow:
        moment = MIDNIGHT + timedelta(days=31 * number)
        return event_row(offset, uuid=UUID(int=number), timestamp=moment, properties=b'{"v":%d}' % offset)

    original, sleep = Partition.replace, time.sleep
    exports: list[Future[tuple[int, list[int]]]] = []
    try:
        append(store, *(version(1, number) for number in range(1, 7)))
        monkeypatch.setattr(Partition, "replace", replace_and_look)
        monkeypatch.setattr(export, "time", SimpleNamespace(sleep=pause, monotonic=time.monotonic))
        monkeypatch.setattr(export, "REST_PATIENCE_S", PATIENCE_S)
        with ThreadPoolExecutor(1) as exporter:
            append(store, *(version(2, number) for number in (5, 1, 3)))
        assert [future.result() for future in exports] == [(6, [1, 2, 3, 4, 5, 6])]
    finally:
        store.close()
        stores.close()


@pytest.mark.parametrize("many", [1, file_versions.MANY])
def test_large_batches_are_compared_by_the_engine_as_small_ones_are(
    many: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resends, corrections, events of one batch that are one, and properties that only look like the server's own."""
    monkeypatch.setattr(file_versions, "MANY", many)
    sent = b'{"a":1,"$sent_at":"2026-03-01T00:00:01Z"}'
    later = b'{"a":1,"$sent_at":"2026-03-01T00:00:02Z"}'
    pairs = [
        (sent, sent, False),
        (sent, later, False),
        (later.replace(b"1,", b"2,"), sent, True),
        (b'{"a":1}', b'{"a":1.0}', True),
        (b'{"$set":{"$sent_at":"x"}}', b'{"$set":{"$sent_at":"y"}}', True),
        (b'{"$sent_at":"1","b":{"$sent_at":"x"}}', b'{"$sent_at":"2","b":{"$sent_at":"y"}}', True),
        (
            b'{"b":"\\"$sent_at\\":\\"x\\"","$sent_at":"1"}',
            b'{"b":"\\"$sent_at\\":\\"y\\"","$sent_at":"1"}',
            True,
        ),
        (b'{"$sent_at":"1"}', b"{}", False),
    ]
    store = DuckDbEventStore(tmp_path / "events.duckdb")
    try:
        first = [
            event_row(1, uuid=UUID(int=n), properties=before) for n, (before, _, _) in enumerate(pairs, 1)
        ]
        second = [
            event_row(2, uuid=UUID(int=n), properties=after) for n, (_, after, _) in enumerate(pairs, 1)
        ]
        twice = [event_row(3, uuid=UUID(int=1), properties=text) for text in (b'{"a":5}', sent)]
        append(store, *first)
        assert store.append(EventBatch(second), log_offset=2) == []
        changed = {n for n, (_, _, changes) in enumerate(pairs, 1) if changes}
        sql = "SELECT uuid, log_offset FROM stored_events"
        with store.reader() as reader:
            assert {uuid.int for uuid, offset in reader.execute(sql) if offset == 2} == changed
        assert store.append(EventBatch([*twice, event_row(3, uuid=UUID(int=99))]), log_offset=3) == [2]
        with store.reader() as reader:
            assert {uuid.int for uuid, offset in reader.execute(sql) if offset == 3} == {99}
    finally:
        store.close()


@pytest.mark.slow
def test_events_are_stored_as_the_oracle_says(engine: Any, tmp_path: Path) -> None:
    run_history(engine, tmp_path)
