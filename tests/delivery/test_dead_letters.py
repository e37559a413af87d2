"""Events that do not become invocations are kept, seen and tried again (spec: hog-runtime 4.10)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import REGISTRY
from tests.delivery.conftest import House, Receiver, stored
from tests.delivery.test_internal import dispatch_all, listener, waiting
from tests.delivery.test_routes import Api

from hoglab.accounts import internal_events
from hoglab.accounts.bootstrap import FirstStart
from hoglab.delivery.api.dead_letter_routes import dead_letter_router
from hoglab.delivery.dispatch.internal_events import InternalEventDispatcher
from hoglab.delivery.runs.dead_letters import shown
from hoglab.storage.database.errors import DatabaseFullError
from hoglab.storage.event_store.ingested import IngestedEvent
from hoglab.storage.invocations import DeadLetterSelection, InvocationBatch
from hoglab.storage.invocations import traces as kept
from hoglab.storage.job_leases import JobLeases

BAD_FILTER = {"properties": [{"type": "hogql", "key": "match(properties.a, properties.b)"}]}
BAD = {"a": "x", "b": "(", "$lib": "web"}
TELL = "fetch(inputs.url, {'body': {'event': event.event}})"


def letters(house: House, **wanted: Any) -> list[dict[str, Any]]:
    rows, count = house.stores.dead_letters.page(1, DeadLetterSelection(**wanted), 1000, 0)
    assert count == len(rows)
    return [shown(row) for row in rows]


@pytest.mark.logs_exceptions
def test_an_event_that_fails_on_the_way_is_put_aside_and_others_go_on(
    house: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = house.create(TELL, values={"url": receiver.url})
    bad = stored("bad", {"plan": "pro"}, distinct_id="u9")

    def broken(event: IngestedEvent) -> bool:
        if event.row.event == "bad":
            raise KeyError("person")
        return False

    with monkeypatch.context() as patch:  # as a mistake of ours would
        patch.setattr("hoglab.delivery.runs.globals.has_person", broken)
        house.run(stored("first"), bad, stored("last"))
    assert sorted(hit.json["event"] for hit in receiver.hits) == ["first", "last"]
    [letter] = letters(house)
    assert (letter["step"], letter["source"], letter["function_id"]) == ("process", "events", None)
    assert letter["reason"] == "KeyError: 'person'"
    assert (letter["event"], letter["distinct_id"], letter["attempts"]) == ("bad", "u9", 1)
    assert letter["properties"] == {"plan": "pro"}

    house.change(function, enabled=False)
    assert (
        house.delivery.dead_letter_retry.retry(1, DeadLetterSelection()).skipped == len(letters(house)) == 1
    )
    house.change(function, enabled=True)
    done = house.delivery.dead_letter_retry.retry(1, DeadLetterSelection())
    assert (done.tried, done.queued, done.failed, done.skipped) == (1, 1, 0, 0)
    house.wait_idle()
    assert receiver.hits[-1].json == {"event": "bad"}
    assert letters(house) == []
    assert house.metrics(function)["succeeded"] == 3


def test_a_filter_that_fails_keeps_the_event_for_its_function_alone(house: House, receiver: Receiver) -> None:
    failing = house.create(TELL, values={"url": receiver.url}, filters=BAD_FILTER)
    house.create("print(1)")
    event = stored(properties=BAD)
    house.run(event)
    [letter] = letters(house, function_id=failing["id"])
    assert (letter["step"], letter["event_uuid"]) == ("filter", str(event.row.uuid))
    triggered = len(house.results())

    again = house.delivery.dead_letter_retry.retry(1, DeadLetterSelection())
    assert (again.tried, again.failed, again.queued) == (1, 1, 0)
    [letter] = letters(house)
    assert letter["attempts"] == 2

    house.change(failing, filters={"properties": []})
    planned = house.delivery.dead_letter_retry.retry(1, DeadLetterSelection(), dry_run=True)
    assert (planned.queued, len(letters(house))) == (1, 1)
    assert house.queue.counts.backlog() == 0
    done = house.delivery.dead_letter_retry.retry(1, DeadLetterSelection())
    assert (done.queued, letters(house)) == (1, [])
    house.wait_idle()
    assert len(house.results()) == triggered + 1  # the healthy function did not get it again
    assert len(receiver.hits) == 1


def test_retrying_twice_delivers_once(house: House, receiver: Receiver) -> None:
    failing = house.create(TELL, values={"url": receiver.url}, filters=BAD_FILTER)
    event = stored(properties=BAD)
    house.dispatch(event)
    house.change(failing, filters={"properties": []})
    house.run(event)  # came once more meanwhile
    assert len(receiver.hits) == 1
    done = house.delivery.dead_letter_retry.retry(1, DeadLetterSelection())
    assert (done.tried, done.queued, letters(house)) == (1, 0, [])
    house.wait_idle()
    assert len(receiver.hits) == 1


def test_letters_of_functions_that_do_not_run_stay(house: House) -> None:
    failing = house.create(filters=BAD_FILTER)
    house.dispatch(stored(properties=BAD))
    house.change(failing, enabled=False)
    done = house.delivery.dead_letter_retry.retry(1, DeadLetterSelection())
    assert (done.skipped, done.tried, len(letters(house))) == (1, 0, 1)
    assert house.stores.dead_letters.discard(1, DeadLetterSelection()) == 1
    assert letters(house) == []


@pytest.mark.logs_exceptions
def test_what_the_queue_cannot_take_is_put_aside_alone(
    house: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.create(TELL, values={"url": receiver.url})
    enqueue = house.queue.enqueue

    def picky(batch: InvocationBatch) -> int:
        if any(invocation.id == refused for invocation in batch.invocations):
            raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
        return enqueue(batch)

    bad = stored("bad")
    [candidate] = house.delivery.dispatcher.plan([bad]).invocations
    refused = candidate.id
    with monkeypatch.context() as patch:
        patch.setattr(house.queue, "enqueue", picky)
        house.dispatch(stored("first"), bad, stored("last"))
    house.run()
    assert sorted(hit.json["event"] for hit in receiver.hits) == ["first", "last"]
    assert [letter["event"] for letter in letters(house)] == ["bad"]
    assert house.delivery.dispatcher.position() == house.offset


def test_a_full_disk_is_no_events_fault(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.create()

    def full(*_: Any, **__: Any) -> int:
        raise DatabaseFullError("queue.db cannot grow: the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(house.queue, "enqueue", full)
        with pytest.raises(DatabaseFullError):
            house.dispatch(stored())
    assert letters(house) == []
    assert house.delivery.dispatcher.position() == 0


def test_the_newest_letters_of_a_function_are_kept(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_DEAD_LETTERS", 3)
    house.create(filters=BAD_FILTER)
    name = "hoglab_delivery_dead_events_crowded_out_total"
    before = REGISTRY.get_sample_value(name) or 0.0
    for number in range(5):
        house.dispatch(stored(properties={**BAD, "n": number}))
    assert [letter["properties"]["n"] for letter in letters(house)] == [4, 3, 2]
    assert REGISTRY.get_sample_value(name) == before + 2
    assert house.queue.counts.stats().dead_letters == 3


def test_letters_past_their_time_are_swept(house: House) -> None:
    house.create(filters=BAD_FILTER)
    house.dispatch(stored(properties=BAD))
    days = kept.DEAD_LETTER_RETENTION_DAYS
    with house.queue_database.write() as tx:
        past = ((days + 1) * 86_400_000_000,)
        tx.connection.exec_driver_sql("UPDATE dead_event SET failed_at = failed_at - ?", past)
    house.queue.sweep()
    assert letters(house) == []


# --- internal events


@pytest.fixture
def service(house: House) -> InternalEventDispatcher:
    return house.delivery.internal_events(house.database, JobLeases(house.database))


@pytest.mark.logs_exceptions
def test_an_internal_event_that_cannot_be_read_holds_up_nobody(
    house: House, receiver: Receiver, service: InternalEventDispatcher
) -> None:
    listener(house, receiver, "$something")
    with house.database.write() as tx:
        internal_events.emit(tx, 1, "$something", {"n": 1}, user_id=None)
        internal_events.emit(tx, 1, "$something", {"n": 2}, user_id=None)
        tx.connection.exec_driver_sql(
            """UPDATE internal_event SET person = '{"id": "nobody", "properties": {}}' """
            "WHERE id = (SELECT max(id) - 1 FROM internal_event)"
        )
    dispatch_all(house, service)
    assert waiting(house) == []
    assert [hit.json["event"]["properties"] for hit in receiver.hits] == [{"n": 2}]
    [letter] = letters(house)
    assert (letter["step"], letter["source"], letter["function_id"]) == ("parse", "internal", None)
    assert letter["reason"] == "ValueError: badly formed hexadecimal UUID string"

    done = house.delivery.dead_letter_retry.retry(1, DeadLetterSelection())
    assert (done.tried, done.failed, len(letters(house))) == (1, 1, 1)
    with house.queue_database.write() as tx:  # as if this version could read it
        tx.connection.exec_driver_sql(
            "UPDATE dead_event SET payload = replace(payload, 'nobody', '00000000-0000-0000-0000-000000000001')"
        )
    done = house.delivery.dead_letter_retry.retry(1, DeadLetterSelection())
    assert (done.queued, letters(house)) == (1, [])
    house.wait_idle()
    assert receiver.hits[-1].json["event"]["properties"] == {"n": 1}


# --- over the API


@pytest.fixture
def api(house: House, prepared: tuple[Any, FirstStart]) -> Api:
    return Api(house, prepared[1].api_key, dead_letter_router(house.delivery))


def test_the_api_lists_retries_and_discards(house: House, api: Api) -> None:
    failing = house.create(filters=BAD_FILTER)
    other = house.create(filters=BAD_FILTER)
    before = datetime.now(UTC)
    house.dispatch(stored("one", BAD), stored("two", BAD))
    page = api.get("/dead_letters/", limit=3)
    assert (page["count"], len(page["results"]), page["next"] is not None) == (4, 3, True)
    mine = api.get("/dead_letters/", function_id=failing["id"], step="filter", after=before.isoformat())
    assert {one["event"] for one in mine["results"]} == {"one", "two"}
    assert set(mine["results"][0]) == {
        "id", "function_id", "source", "step", "reason", "event_uuid", "event", "distinct_id", "properties",
        "attempts", "first_failed_at", "failed_at",
    }  # fmt: skip
    assert api.get("/dead_letters/", before=before.isoformat())["count"] == 0
    assert api.get("/dead_letters/", reason_contains="no such text")["count"] == 0

    house.change(failing, filters={"properties": []})
    first = mine["results"][0]["id"]
    counts = {"queued_count": 1, "tried_count": 1, "failed_count": 0, "skipped_count": 0}
    for dry_run in (True, False):
        answer = api.call("POST", "/dead_letters/retry/", {"ids": [first], "dry_run": dry_run})
        assert (answer.status_code, answer.json()) == (200, counts)
    answer = api.call("POST", "/dead_letters/discard/", {"function_id": other["id"]})
    assert answer.json() == {"discarded_count": 2}
    assert api.get("/dead_letters/")["count"] == 1


@pytest.mark.parametrize(
    ("body", "attr"),
    [
        ({"ids": ["x"]}, "ids__0"),
        ({"ids": "x"}, "ids"),
        ({"step": "inputs"}, "step"),
        ({"function_id": "x"}, "function_id"),
        ({"after": "2026-01-02", "before": "2026-01-01"}, "before"),
        ({"dry_run": "perhaps"}, "dry_run"),
    ],
)
def test_bad_requests_are_refused(api: Api, body: dict[str, Any], attr: str) -> None:
    answer = api.call("POST", "/dead_letters/retry/", body)
    assert (answer.status_code, answer.json()["attr"]) == (400, attr)
