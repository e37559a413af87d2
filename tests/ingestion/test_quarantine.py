"""Whose fault it is that a record cannot be processed: the server's own stops the line, a bad record is put aside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from prometheus_client import REGISTRY
from tests.embedded import EmbeddedEventStore
from tests.ingestion.conftest import event, record
from tests.waiting import wait_for

from hoglab.capture.records import VERSION, RecordError, decode_record
from hoglab.ingestion import IngestedEvent, Quarantine
from hoglab.ingestion.quarantine import QuarantineFullError
from hoglab.storage.database import DatabaseUnreadableError
from hoglab.storage.database.tables import person
from hoglab.storage.event_log import SequenceNumber
from hoglab.storage.event_log.quarantine import QuarantineStore
from hoglab.storage.event_store import EventBatch, EventRow, EventStoreUnavailableError

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


class Parts:
    """Transformer and dispatcher that fail for whatever they are given, or for one event, while `error` is set."""

    def __init__(self) -> None:
        self.transforming: Exception | None = None
        self.dispatching: Exception | None = None
        self.bad_name = ""
        self.offset = 0
        self.seen: list[str] = []

    def transform(self, project_id: int, events: list[Any]) -> list[Any]:
        assert project_id == 1
        if self.transforming is not None:
            raise self.transforming
        if any(each.event == self.bad_name for each in events):
            raise ValueError("a bad event")
        return events

    def position(self) -> int:
        return self.offset

    def has_capacity(self) -> bool:
        return True

    def dry_run(self, events: Sequence[IngestedEvent]) -> None:
        if self.dispatching is not None:
            raise self.dispatching

    def flush(self) -> None:
        pass

    def dispatch(
        self, events: Sequence[IngestedEvent], *, log_offset: int | None, done: object = None
    ) -> None:
        self.dry_run(events)
        self.seen += [each.row.event for each in events]
        self.offset = log_offset


class BrokenStore(EmbeddedEventStore):
    """Its tables cannot be written while `error` is set, though it looks sound."""

    error: Exception | None = None

    def append(self, batch: EventBatch, **where: Any) -> Sequence[int]:
        if self.error is not None:
            raise self.error
        return super().append(batch, **where)

    def dry_run(self, rows: Sequence[EventRow]) -> None:
        if self.error is not None:
            raise self.error
        super().dry_run(rows)


@pytest.fixture
def faults() -> Parts:
    return Parts()


@pytest.fixture
def parts(faults: Parts) -> dict[str, Any]:
    return {"dispatcher": faults, "transformer": faults}


def break_person(house: Any, text: str) -> None:
    with house.database.write() as tx:
        tx.connection.exec_driver_sql("UPDATE person SET properties = ?", (text,))


def set_on(place: str, error: Exception) -> Callable[[Any, Parts], Callable[[], None]]:
    def begin(house: Any, faults: Parts) -> Callable[[], None]:
        target = house.store if place == "error" else faults
        setattr(target, place, error)
        return lambda: setattr(target, place, None)

    return begin


def damaged_person(house: Any, faults: Parts) -> Callable[[], None]:
    break_person(house, '{"name": "Ann"')
    return lambda: break_person(house, "{}")


FAULTS = {
    "functions cannot be loaded by transformations": set_on("transforming", KeyError("inputs_schema")),
    "functions cannot be loaded by delivery": set_on("dispatching", DatabaseUnreadableError("is damaged")),
    "delivery fails whatever it is given": set_on("dispatching", RuntimeError("away")),
    "the store cannot be written": set_on("error", EventStoreUnavailableError("Corrupt database file")),
    "no memory": set_on("error", MemoryError()),
    "the disk fails": set_on("error", OSError(5, "Input/output error")),
    "an unreadable person": damaged_person,
}


@pytest.mark.logs_exceptions
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_of_the_server_stops_the_line_and_loses_nothing(
    house: Any, faults: Parts, fault: Callable[[Any, Parts], Callable[[], None]]
) -> None:
    house.close()
    house.make_store = BrokenStore
    house.open()
    house.send(event("before", "ann", properties={"$set": {"name": "Ann"}}))
    house.run()
    mend = fault(house, faults)
    for number in range(4):
        house.send(event(f"e{number}", "ann", properties={"$set": {"visits": number}}))
    wait_for(lambda: house.ingestion.fault is not None)
    before = REGISTRY.get_sample_value("hoglab_ingestion_retries_total") or 0
    wait_for(lambda: (REGISTRY.get_sample_value("hoglab_ingestion_retries_total") or 0) >= before + 3)
    assert "loses nothing" in house.ingestion.fault
    assert house.quarantine.records() == []
    assert REGISTRY.get_sample_value("hoglab_ingestion_stands_still") == 1
    mend()
    house.run()
    wait_for(lambda: house.ingestion.fault is None)
    assert house.rows() == faults.seen == ["before", "e0", "e1", "e2", "e3"]
    assert house.quarantine.records() == []


@pytest.mark.logs_exceptions
def test_a_bad_record_is_put_aside_and_leaves_no_trace_elsewhere(house: Any, faults: Parts) -> None:
    faults.bad_name = "bad"
    offset = house.send(event("bad", "ann"), event("good", "bob"))
    house.send(event("behind", "cid"))
    house.run()
    (found,) = house.quarantine.records()
    assert (found.offset, found.project_id, found.reason) == (offset, 1, "ValueError: a bad event")
    assert house.rows() == faults.seen == ["behind"]
    with house.database.read() as connection:  # what was tried out was taken back
        assert connection.scalar(sa.select(sa.func.count()).select_from(person)) == 1


@pytest.mark.logs_exceptions
def test_a_replayed_record_is_ingested_once_and_a_bad_one_comes_back(house: Any, faults: Parts) -> None:
    faults.bad_name = "bad"
    first = house.send(event("bad", number=1))
    house.send(event("bad", number=2))
    house.run()
    assert house.quarantine.replay([first]) == 1
    wait_for(lambda: first not in [each.offset for each in house.quarantine.records()])
    wait_for(lambda: len(house.quarantine.records()) == 2)
    faults.bad_name = ""
    house.send(event("bad", number=2))  # sent again by its client, meanwhile
    house.run()
    assert house.quarantine.replay() == 2
    wait_for(lambda: house.quarantine.records() == [])
    house.run()
    assert sorted(house.rows("uuid")) == [UUID(int=1), UUID(int=2)]


@pytest.mark.logs_exceptions
@pytest.mark.parametrize("order", sorted(permutations(["stored", "held back", "corrected"])))
def test_of_a_replayed_event_and_its_corrections_the_last_that_arrived_counts(
    house: Any, faults: Parts, order: tuple[str, ...]
) -> None:
    """Also of an event that shares its uuid with another one, which stays as it is."""
    faults.bad_name = "bad"
    for second, text in enumerate(order):
        moment = NOW + timedelta(seconds=second)
        made = event("good", "ann", 1, properties={"v": text}, timestamp=NOW.isoformat())
        other = event("bad" if text == "held back" else "good", "bob", 1, timestamp=NOW.isoformat())
        house.append(record(made, other, received_at=moment))
    house.run()
    assert house.quarantine.count() == 1
    faults.bad_name = ""
    assert house.quarantine.replay() == 1
    wait_for(lambda: house.quarantine.count() == 0)
    house.run()
    assert house.rows("properties->>'v'", "distinct_id = 'ann'") == [order[-1]]
    assert sorted(house.rows("event", "distinct_id = 'bob'")) == ["bad", "good"]


class TestQuarantine:
    def put(self, quarantine: Quarantine, offset: int, payload: bytes) -> None:
        quarantine.put(SequenceNumber(offset), payload, "because")

    def test_it_is_never_emptied_by_itself(self, house: Any) -> None:
        for offset in range(1, 1_101):
            self.put(house.quarantine, offset, b"x")
        assert house.quarantine.count() == 1_100

    def test_it_takes_no_more_than_its_limit_and_says_so(self, house: Any) -> None:
        quarantine = Quarantine(QuarantineStore(house.queue), max_bytes=100)
        self.put(quarantine, 1, b"x" * 90)
        with pytest.raises(QuarantineFullError, match="HOGLAB_QUARANTINE_MAX_BYTES"):
            self.put(quarantine, 2, b"x" * 20)
        assert [each.offset for each in quarantine.records()] == [1]
        assert quarantine.discard([1]) == 1
        self.put(quarantine, 2, b"x" * 2_000)  # alone, it is taken whatever its size
        assert quarantine.state().bytes == 2_000
        assert REGISTRY.get_sample_value("hoglab_ingestion_quarantine_records") == 1

    def test_projects_see_their_own(self, house: Any) -> None:
        self.put(house.quarantine, 1, record(event("a"), project_id=1))
        self.put(house.quarantine, 2, record(event("b"), project_id=2))
        self.put(house.quarantine, 3, b"junk")
        assert [each.offset for each in house.quarantine.records(2)] == [2]
        assert house.quarantine.get(1, 2) is None
        assert house.quarantine.discard(None, 1) == 1
        assert house.quarantine.replay([2, 3], 1) == 0
        assert [each.offset for each in house.quarantine.records()] == [2, 3]


@pytest.mark.logs_exceptions
def test_a_full_quarantine_stops_the_line(house: Any, faults: Parts) -> None:
    house.close()
    house.open()
    house.quarantine.max_bytes = 300
    faults.bad_name = "bad"
    for _ in range(10):
        house.send(event("bad"))
    house.send(event("good"))
    house.ingestion.start()
    wait_for(lambda: "HOGLAB_QUARANTINE_MAX_BYTES" in (house.ingestion.fault or ""))
    assert 1 <= house.quarantine.count() < 10
    assert house.rows() == []
    house.quarantine.max_bytes = 10_000
    house.run()
    assert house.quarantine.count() == 10
    assert house.rows() == ["good"]


class TestChecksums:
    def test_a_damaged_record_is_noticed_wherever_it_is_damaged(self) -> None:
        good = record(event("a", properties={"text": "x" * 20}))
        assert decode_record(good).envelope.events[0].event == "a"
        for place in range(len(good)):
            damaged = bytearray(good)
            damaged[place] ^= 0x01
            with pytest.raises(RecordError):
                decode_record(bytes(damaged))

    def test_records_of_the_first_version_are_still_read(self) -> None:
        good = record(event("a"))
        assert good[0] == VERSION == 2
        assert decode_record(b"\x01" + good[5:]).envelope.events[0].event == "a"
