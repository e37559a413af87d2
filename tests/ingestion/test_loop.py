"""From the log to the store, persons and dispatch, with crashes, poison and back-pressure in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import UUID

import orjson
import pytest
from prometheus_client import REGISTRY
from tests.embedded import EmbeddedEventStore
from tests.waiting import PATIENCE_S, wait_for

from hoglab.ingestion import Event, IngestedEvent, IngestionLimits
from hoglab.people import derived_person_id
from hoglab.storage.catching_up import Awaiting, CatchUp
from hoglab.storage.event_store import EventBatch, EventStoreUnavailableError


# How the pieces of this test are made is in conftest.py.
def event(name: str, distinct_id: str = "u", number: int | None = None, **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"event": name, "distinct_id": distinct_id, **fields}
    if number is not None:
        made["uuid"] = str(UUID(int=number))
    return made


class Recorder:
    """A dispatcher that remembers what it is given, and fails or refuses when told to."""

    def __init__(self) -> None:
        self.offset = 0
        self.seen: list[IngestedEvent] = []
        self.failures = 0
        self.flushes = 0
        self.room = threading.Event()
        self.room.set()

    def position(self) -> int:
        return self.offset

    def dispatch(
        self, events: Sequence[IngestedEvent], *, log_offset: int | None, done: object = None
    ) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the dispatcher fails")
        self.seen += events
        self.offset = log_offset

    def dry_run(self, events: Sequence[IngestedEvent]) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the dispatcher fails")

    def has_capacity(self) -> bool:
        return self.room.is_set()

    def flush(self) -> None:
        self.flushes += 1

    def names(self) -> list[str]:
        return [each.row.event for each in self.seen]


@pytest.fixture
def dispatcher() -> Recorder:
    return Recorder()


@pytest.fixture
def parts(dispatcher: Recorder) -> dict[str, Any]:
    return {"dispatcher": dispatcher}


def test_events_reach_the_store_with_their_persons(house: Any, dispatcher: Recorder) -> None:
    house.send(
        event("$pageview", "anon", 1, properties={"$current_url": "/a", "$groups": {"company": "acme"}}),
        event("$identify", "user", 2, properties={"$anon_distinct_id": "anon", "$set": {"plan": "pro"}}),
    )
    house.send(event("buy", "user", 3, timestamp="2026-11-21T11:00:00Z", properties={"price": 9.5}))
    house.run()
    person = derived_person_id(1, "anon")
    assert house.rows("event, distinct_id, person_id, group_0") == [
        ("$pageview", "anon", person, "acme"),
        ("$identify", "user", person, None),
        ("buy", "user", person, None),
    ]
    ((properties, person_properties, timestamp),) = house.rows(
        "properties, person_properties, timestamp", "event = 'buy'"
    )
    assert orjson.loads(properties) == {"price": 9.5, "$ip": "10.0.0.1"}
    assert orjson.loads(person_properties)["plan"] == "pro"
    assert timestamp.isoformat() == "2026-11-21T11:00:00"
    assert dispatcher.names() == ["$pageview", "$identify", "buy"]
    assert dispatcher.seen[2].properties["price"] == 9.5
    assert dispatcher.seen[2].person_properties["plan"] == "pro"
    assert (house.log.position("ingestion"), house.store.position(), dispatcher.offset) == (2, 2, 2)


class TestLinger:
    """After a small batch the next one waits for more, unless somebody waits for it."""

    HOUR = 3_600.0

    @pytest.fixture
    def lingering(self, house: Any) -> Any:
        """A house that has ingested one event, and lingers for an hour."""
        house.limits = replace(house.limits, linger_s=self.HOUR)
        house.ingestion = house.make_ingestion()
        house.send(event("first", number=1))
        house.run()
        return house

    def test_the_first_event_is_ingested_at_once_and_others_together(
        self, lingering: Any, dispatcher: Recorder
    ) -> None:
        batches = REGISTRY.get_sample_value("hoglab_ingestion_batch_seconds_count")
        assert batches is not None
        for number in range(2, 12):
            lingering.send(event("more", number=number))
        assert (lingering.store.position(), dispatcher.names()) == (1, ["first"])
        lingering.ingestion.hurry()
        lingering.run()
        assert len(lingering.rows()) == 11
        assert REGISTRY.get_sample_value("hoglab_ingestion_batch_seconds_count") == batches + 1

    def test_it_ends_by_itself(self, house: Any) -> None:
        house.limits = replace(house.limits, linger_s=0.01)
        house.ingestion = house.make_ingestion()
        house.ingestion.start()
        for number in range(1, 21):
            house.send(event("e", number=number))
        house.run()
        assert len(house.rows()) == 20

    @pytest.mark.parametrize("is_waited_for", ["by a request", "by a service"])
    def test_nobody_who_waits_for_events_lingers(self, lingering: Any, is_waited_for: str) -> None:
        catch_up = CatchUp(lingering.log, lingering.store.position, lingering.ingestion.hurry)
        for number in range(2, 5):
            lingering.send(event("more", number=number))
            if is_waited_for == "by a request":
                assert catch_up.wait(1, PATIENCE_S)
            else:
                awaiting: Awaiting[int] = Awaiting(catch_up, lambda project_id: project_id)
                wait_for(lambda waiting=awaiting: waiting.ready([1]))
            assert len(lingering.rows()) == number

    def test_large_batches_do_not_linger(self, lingering: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("hoglab.ingestion.loop.SMALL_RECORDS", 1)
        lingering.send(event("more", number=2))
        lingering.ingestion.hurry()
        lingering.run()
        for number in range(3, 12):
            lingering.send(event("more", number=number))
            lingering.run()

    def test_a_stop_does_not_wait_for_it(self, lingering: Any) -> None:
        lingering.send(event("more", number=2))
        assert lingering.ingestion.stop(PATIENCE_S)
        lingering.restart()
        lingering.run()
        assert lingering.rows() == ["first", "more"]


def test_projects_are_apart(house: Any) -> None:
    house.send(event("e", number=1))
    house.send(event("e", number=1), project_id=2)
    house.run()
    assert house.rows("project_id, person_id") == [
        (1, derived_person_id(1, "u")),
        (2, derived_person_id(2, "u")),
    ]


def test_an_event_sent_again_is_stored_and_dispatched_once(house: Any, dispatcher: Recorder) -> None:
    at = "2026-03-01T12:00:00Z"
    house.send(event("first", number=1, timestamp=at), event("other", number=2))
    house.send(event("first", number=1, timestamp=at))
    house.run()
    house.send(event("first", number=1, timestamp=at), event("third", number=3))
    house.run()
    assert house.rows() == ["first", "other", "third"]
    assert dispatcher.names() == ["first", "other", "third"]


@pytest.mark.parametrize("together", [True, False])
def test_different_events_with_one_uuid_are_stored_and_dispatched(
    house: Any, dispatcher: Recorder, together: bool
) -> None:
    different = [
        event("first", number=1, timestamp="2026-03-01T12:00:00Z"),
        event("second", number=1, timestamp="2026-03-01T12:00:00Z"),
        event("second", number=1, timestamp="2026-03-02T12:00:00Z"),
        event("second", number=1, timestamp="2026-03-02T12:00:00Z", distinct_id="v"),
    ]
    for some in [different] if together else [[each] for each in different]:
        house.send(*some)
        house.run()
    assert house.rows() == ["first", "second", "second", "second"]
    assert dispatcher.names() == ["first", "second", "second", "second"]


@pytest.mark.parametrize("together", [True, False])
def test_a_corrected_event_is_stored_as_it_came_last_and_dispatched_as_it_came_first(
    house: Any, dispatcher: Recorder, together: bool
) -> None:
    at = "2026-03-01T12:00:00Z"
    versions = [
        event("e", number=1, timestamp=at, properties={"plan": plan}) for plan in ("free", "pro", "free")
    ]
    versions[2]["timestamp"] = "2026-03-01T13:00:00Z"
    for some in [versions] if together else [[each] for each in versions]:
        house.send(*some)
        house.run()
    assert house.rows("event, properties->>'plan', hour(timestamp)") == [("e", "free", 13)]
    assert [each.properties["plan"] for each in dispatcher.seen] == ["free"]
    assert dispatcher.seen[0].row.timestamp.hour == 12


def test_history_is_stored_and_runs_nothing(house: Any, dispatcher: Recorder) -> None:
    house.send(event("old"), historical_migration=True)
    house.send(event("new"))
    house.run()
    assert house.rows() == ["old", "new"]
    assert dispatcher.names() == ["new"]


def test_events_of_a_project_that_is_gone_are_dropped(house: Any) -> None:
    house.send(event("lost"), project_id=99)
    house.send(event("kept"))
    house.run()
    assert house.rows() == ["kept"]
    assert house.quarantine.records() == []


def test_addresses_are_removed_where_the_project_says_so(house: Any) -> None:
    import sqlalchemy as sa

    from hoglab.storage.database.tables import project

    with house.database.write() as tx:
        tx.execute(sa.update(project).where(project.c.id == 2).values(anonymize_ips=True))
        tx.changed("project", 2)
    house.send(event("seen"))
    house.send(event("unseen"), project_id=2)
    house.run()
    assert ["$ip" in orjson.loads(each) for each in house.rows("properties")] == [True, False]


# --- records that cannot be processed


@pytest.mark.parametrize("junk", [b"", b"\x07future", b"\x01\x00\x03abc", b"\x01"])
def test_a_record_that_cannot_be_read_is_quarantined(house: Any, dispatcher: Recorder, junk: bytes) -> None:
    house.send(event("before"))
    offset = house.append(junk)
    house.send(event("after"))
    house.run()
    assert house.rows() == ["before", "after"]
    assert dispatcher.names() == ["before", "after"]
    (quarantined,) = house.quarantine.records()
    assert quarantined.offset == offset
    assert house.quarantine.get(offset) == (quarantined, junk)
    assert quarantined.reason.startswith("RecordError: ")
    house.restart()
    assert house.ingestion.position <= 3
    house.run()
    assert len(house.quarantine.records()) == 1
    assert house.rows() == ["before", "after"]


class Shouting:
    """A transformer: upper case, drops events named ``drop``, breaks on events named ``bad``."""

    def transform(self, project_id: int, events: list[Event]) -> list[Event]:
        for each in events:
            if each.event == "bad":
                raise ValueError("cannot be transformed")
            each.event = each.event.upper()
            each.properties["project"] = project_id
            if each.event == "MOVE":
                each.distinct_id = ""
        return [each for each in events if each.event != "DROP"]


def test_transformations_come_before_persons(house: Any, parts: dict[str, Any], dispatcher: Recorder) -> None:
    parts["transformer"] = Shouting()
    house.restart()
    house.send(event("a"), event("drop", "nobody"), event("move"))
    house.run()
    assert house.rows("event, distinct_id") == [("A", "u"), ("MOVE", "u")]
    assert house.people.person_for(1, "nobody") is None
    assert dispatcher.seen[0].properties["project"] == 1


class Slow:
    """A transformer that takes a second of its own time for each event."""

    def __init__(self) -> None:
        self.at = 0.0
        self.sizes: list[int] = []

    def __call__(self) -> float:
        return self.at

    def transform(self, _project_id: int, events: list[Event]) -> list[Event]:
        self.at += len(events)
        self.sizes.append(len(events))
        return events


def test_batches_are_small_while_transformations_are_slow(house: Any, parts: dict[str, Any]) -> None:
    slow = parts["transformer"] = parts["clock"] = Slow()
    house.limits = IngestionLimits(first_events=40, least_events=5, transform_s=10.0, idle_s=0.05)
    house.restart()
    for _ in range(20):
        house.send(*(event("e") for _ in range(10)))
    house.run()
    assert sum(slow.sizes) == len(house.rows()) == 200
    assert slow.sizes[0] == 40
    assert set(slow.sizes[2:]) == {10}, "one was cut before the first was done"


@pytest.mark.logs_exceptions
def test_a_record_that_fails_alone_is_quarantined_and_no_other(
    house: Any, parts: dict[str, Any], dispatcher: Recorder
) -> None:
    parts["transformer"] = Shouting()
    house.restart()
    for name in ("a", "b"):
        house.send(event(name))
    offset = house.send(event("bad"), event("innocent"))
    house.send(event("c"))
    house.run()
    assert house.rows() == ["A", "B", "C"]
    assert dispatcher.names() == ["A", "B", "C"]
    assert [(each.offset, each.reason) for each in house.quarantine.records()] == [
        (offset, "ValueError: cannot be transformed")
    ]


# --- engines that fail for a while


class FragileStore(EmbeddedEventStore):
    """Refuses as often as `failures` says."""

    failures = 0

    def append(self, batch: EventBatch, **where: Any) -> Sequence[int]:
        self.check()
        return super().append(batch, **where)

    def check(self) -> None:
        if self.failures:
            self.failures -= 1
            raise EventStoreUnavailableError("not now")
        super().check()


@pytest.mark.logs_exceptions
def test_nothing_is_lost_or_quarantined_while_the_store_fails(house: Any, dispatcher: Recorder) -> None:
    house.close()
    house.make_store = FragileStore
    house.open()
    house.store.failures = 6
    house.send(event("e", "anon"), event("e", "user"))
    house.send(event("$identify", "user", properties={"$anon_distinct_id": "anon"}))
    house.run()
    assert house.store.failures == 0
    assert house.quarantine.records() == []
    # The merge was made by an attempt whose events were not stored; the store learns of it all the same.
    assert set(house.rows("person_id")) == {derived_person_id(1, "user")}
    assert len(dispatcher.seen) == 3


def test_merges_reach_the_store_after_a_crash_between_the_two(house: Any) -> None:
    house.send(event("e", "anon"), event("e", "user"))
    house.run()
    house.ingestion.stop(10)
    house.send(event("$identify", "user", properties={"$anon_distinct_id": "anon"}))
    # What the loop does first with that record, and then the process ends:
    crashed = house.make_ingestion()
    crashed._steps.store = FragileStore(house.folder / "other.duckdb")
    crashed._steps.store.failures = 10**9
    crashed._keeper.start()
    with ThreadPoolExecutor(1) as decoder, pytest.raises(EventStoreUnavailableError):
        crashed._turn(decoder)
    crashed._steps.store.close()
    assert set(house.rows("person_id")) == {derived_person_id(1, "user"), derived_person_id(1, "anon")}
    house.restart()
    house.run()
    assert set(house.rows("person_id")) == {derived_person_id(1, "user")}


@pytest.mark.logs_exceptions
def test_what_was_stored_but_not_dispatched_is_dispatched_after_a_restart(
    house: Any, dispatcher: Recorder
) -> None:
    house.send(event("a", number=1))
    house.run()
    dispatcher.failures = 10**9
    events = [event("a", number=1), event("b", number=2), event("c", number=3)]
    house.send(*events)
    house.wait(lambda: house.store.position() == 2)
    assert house.ingestion.stop(10)
    assert house.rows() == ["a", "b", "c"]
    assert dispatcher.names() == ["a"]
    dispatcher.failures = 0
    house.send(event("d", number=4))
    house.restart()
    house.run()
    assert house.rows() == ["a", "b", "c", "d"]
    assert dispatcher.names() == ["a", "b", "c", "d"]
    assert dispatcher.offset == 3


@pytest.mark.logs_exceptions
def test_a_dispatcher_that_fails_for_a_while_sees_everything_once(house: Any, dispatcher: Recorder) -> None:
    dispatcher.failures = 2
    house.send(event("a"))
    house.send(event("b"))
    house.run()
    assert dispatcher.names() == ["a", "b"]
    assert house.rows() == ["a", "b"]


def test_ingestion_waits_while_there_is_no_room_and_capture_goes_on(house: Any, dispatcher: Recorder) -> None:
    dispatcher.room.clear()
    house.ingestion.start()
    for number in range(20):
        house.send(event("e", number=number + 1))
    assert house.ingestion.position == 0
    assert house.log.stats().records == 20
    time.sleep(0.01)
    waited_s = house.ingestion.lag_s()
    assert waited_s >= 0.01
    lag = REGISTRY.get_sample_value("hoglab_ingestion_lag_seconds")
    assert lag is not None
    assert lag >= waited_s
    dispatcher.room.set()
    house.run()
    assert len(house.rows()) == 20
    assert house.ingestion.lag_s() == 0
    assert REGISTRY.get_sample_value("hoglab_ingestion_lag_seconds") == 0


def test_what_the_dispatcher_left_for_later_is_written_when_idle_and_at_the_end(
    house: Any, dispatcher: Recorder
) -> None:
    house.send(event("e", number=1))
    house.run()
    house.wait(lambda: dispatcher.flushes == 1)
    house.ingestion.stop(10)
    assert dispatcher.flushes == 2


# --- batches and life


def test_batches_are_cut_by_events_and_bytes(house: Any, dispatcher: Recorder) -> None:
    house.limits = IngestionLimits(batch_events=10, batch_json_bytes=5_000, read_records=7, idle_s=0.05)
    house.restart()
    for start in range(0, 120, 3):
        house.send(*(event("e", number=start + index + 1, properties={"a": "x" * 300}) for index in range(3)))
    house.send(*(event("large", number=1000 + index, properties={"a": "x" * 300}) for index in range(40)))
    house.run()
    assert len(house.rows()) == len(dispatcher.seen) == 160


def test_a_restart_goes_on_where_it_stopped(house: Any, dispatcher: Recorder) -> None:
    for round_ in range(3):
        house.send(event(f"e{round_}"))
        house.run()
        house.restart()
    house.send(event("e3"))
    house.run()
    assert house.rows() == dispatcher.names() == ["e0", "e1", "e2", "e3"]


def test_a_log_that_was_lost_goes_on_above_what_the_store_holds(house: Any, dispatcher: Recorder) -> None:
    for number in range(5):
        house.send(event("e", number=number + 1))
    house.run()
    house.close()
    for path in house.folder.glob("queue.db*"):
        path.unlink()
    dispatcher.offset = 0
    house.open()
    house.ingestion.start()
    assert house.send(event("new")) == 6
    house.run()
    assert house.rows("event", "event = 'new'") == ["new"]
    assert dispatcher.names()[-1] == "new"


@pytest.mark.parametrize("waits", [True, False])
def test_records_that_the_store_has_and_a_new_log_lacks_are_passed_over(
    house: Any, dispatcher: Recorder, waits: bool
) -> None:
    """Dispatch lacks them, too; ``waits``: a record behind them is in the log before ingestion begins."""
    for number in range(5):
        house.send(event("e", number=number + 1))
    house.run()
    house.close()
    for path in house.folder.glob("queue.db*"):
        path.unlink()
    dispatcher.offset = 2
    house.open()
    house.log.advance_sequence(5)
    if waits:
        house.send(event("new", number=9))
    house.ingestion.start()
    if not waits:
        house.wait(lambda: house.ingestion.owned() == [0])
        house.send(event("new", number=9))
    house.run()
    assert house.rows() == ["e"] * 5 + ["new"]
    assert dispatcher.names() == ["e"] * 5 + ["new"]
    assert house.log.position("ingestion") == 6


def test_stopping_is_quick_and_starting_is_not_needed(house: Any) -> None:
    assert house.make_ingestion().stop(1)
    house.ingestion.start()
    assert house.ingestion.is_alive()
    assert house.ingestion.stop(5)
    assert not house.ingestion.is_alive()


def test_accepting_goes_first_while_requests_outpace_ingestion(house: Any, dispatcher: Recorder) -> None:
    house.limits = IngestionLimits(
        read_records=1, busy_factor=2, busy_share=0.001, max_pause_s=3600, idle_s=0.05
    )
    house.restart()
    for number in range(10):
        house.send(event("e", number=number + 1))
    house.ingestion.start()
    for number in range(10, 20):
        house.send(event("e", number=number + 1))
    house.wait(lambda: len(dispatcher.seen) > 0)
    assert house.ingestion.stop(5)  # it pauses, but not deaf
    assert len(dispatcher.seen) < 20
    house.limits = IngestionLimits(read_records=1, busy_factor=0, busy_share=0.001, busy_until_bytes=1)
    house.restart()
    house.run()  # too much waits for any pause
    assert len(house.rows()) == 20


@pytest.mark.parametrize("part", ["transformer", "dispatcher"])
def test_slow_functions_are_no_reason_to_leave_time_to_accepting(
    house: Any, parts: dict[str, Any], part: str
) -> None:
    class SlowDispatcher(Recorder):
        def dispatch(self, events: Any, *, log_offset: int | None, done: object = None) -> None:
            parts["clock"].transform(1, events)
            super().dispatch(events, log_offset=log_offset)

    slow = parts["clock"] = Slow()
    parts[part] = slow if part == "transformer" else SlowDispatcher()
    house.limits = IngestionLimits(
        read_records=1, busy_factor=0, busy_share=0.001, max_pause_s=3600, idle_s=0.05
    )
    house.restart()
    house.send(event("e"))
    house.ingestion.start()
    for _ in range(20):
        house.send(event("e"))
    house.run()
    assert slow.at >= 20
    assert len(house.rows()) == 21


def test_stopping_does_not_wait_for_an_event(house: Any) -> None:
    house.limits = replace(house.limits, idle_s=600)
    house.restart()
    house.send(event("e"))
    house.run()
    assert house.ingestion.stop(60)
