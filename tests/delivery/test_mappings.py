"""Runs find their mapping again when mappings are edited while they wait."""

from __future__ import annotations

import sqlite3
import zlib
from typing import Any

import orjson
import pytest
from aiohttp import web
from tests.waiting import wait_for

from hoglab.delivery.execution.retries import RetryPolicy
from hoglab.delivery.replay.reruns import RerunFilter, rerun

from .conftest import House, Receiver, stored

SLOW_RETRY = RetryPolicy(step_s=60.0, jitter_s=0.0, max_backoff_s=60.0)
HOG = "fetch(inputs.url, {'body': f'{inputs.what} {event.event}'})"


def mapping(what: str, event: str | None = None, *, name: str | None = None) -> dict[str, Any]:
    return {
        **({} if name is None else {"name": name}),
        "inputs_schema": [{"key": "what", "type": "string"}],
        "inputs": {"what": {"value": what}},
        "filters": {"events": [{"id": event or what, "type": "events"}]},
    }


def create(house: House, receiver: Receiver, mappings: list[dict[str, Any]], **body: Any) -> dict[str, Any]:
    return house.create(HOG, values={"url": receiver.url}, mappings=mappings, **body)


def sent(receiver: Receiver) -> list[str]:
    return sorted(hit.body.decode() for hit in receiver.hits)


def statuses(house: House) -> dict[str, int]:
    found = [one["status"] for one in house.results()]
    return {each: found.count(each) for each in found}


A, B, C = (mapping(each) for each in "ABC")
NAMED_A, NAMED_B, NAMED_C = (mapping(each, name=f"mapping {each}") for each in "ABC")


@pytest.mark.parametrize(
    ("edited", "expected", "cancelled"),
    [
        ([B, A], ["A A", "B B"], 0),  # in another order
        ([C, A, B], ["A A", "B B"], 0),  # one before the others
        ([B], ["B B"], 1),  # the first is removed
        ([C, B], ["B B", "C A"], 0),  # the first, which has no name, is edited in its place
        ([mapping("A2", "A"), B], ["A2 A", "B B"], 0),  # its input
        ([B, mapping("A2", "A")], ["A2 A", "B B"], 0),  # and its place
        ([{**B, "name": "now named"}, {**A, "name": "too"}], ["A A", "B B"], 0),
        ([C], [], 2),  # nobody can say which of them it was
    ],
)
def test_queued_runs_go_on_with_their_own_mapping(
    house: House, receiver: Receiver, edited: list[dict[str, Any]], expected: list[str], cancelled: int
) -> None:
    function = create(house, receiver, [A, B])
    house.dispatch(stored("A"), stored("B"))
    house.change(function, mappings=edited)
    house.run()
    assert sent(receiver) == expected
    assert statuses(house).get("cancelled", 0) == cancelled


@pytest.mark.parametrize(
    ("edited", "expected", "cancelled"),
    [
        ([NAMED_B, NAMED_A], ["A A", "B B"], 0),
        ([NAMED_B], ["B B"], 1),
        ([NAMED_C, NAMED_B], ["B B"], 1),  # another name is another mapping
        (
            [NAMED_B, mapping("new", "other", name="mapping A")],
            ["B B", "new A"],
            0,
        ),  # what has the name is it
    ],
)
def test_names_say_which_mapping_is_which(
    house: House, receiver: Receiver, edited: list[dict[str, Any]], expected: list[str], cancelled: int
) -> None:
    function = create(house, receiver, [NAMED_A, NAMED_B])
    house.dispatch(stored("A"), stored("B"))
    house.change(function, mappings=edited)
    house.run()
    assert sent(receiver) == expected
    assert statuses(house).get("cancelled", 0) == cancelled


def test_a_removed_mapping_does_not_come_back_as_another(house: House, receiver: Receiver) -> None:
    function = create(house, receiver, [A, B])
    house.dispatch(stored("B"))
    for mappings in ([A], None, [A, C]):
        house.change(function, mappings=mappings)
    house.run()
    assert (sent(receiver), statuses(house)) == ([], {"cancelled": 1})


def test_what_waits_for_its_next_attempt_keeps_its_mapping(house: House, receiver: Receiver) -> None:
    """The request is repeated as it was, under the same key, while its mapping is there; else it ends."""
    house.options["retries"] = SLOW_RETRY
    house.restart()
    receiver.answer = lambda _request, number: web.Response(status=503 if number < 2 else 200)
    function = create(house, receiver, [A, B])
    house.dispatch(stored("A"), stored("B"))
    house.delivery.start()
    wait_for(lambda: house.rows("invocation_result", "status", "version") == [("running",)] * 2)
    house.change(function, mappings=[B])
    with house.queue_database.write() as tx:
        tx.connection.exec_driver_sql("UPDATE invocation SET scheduled_at = 0 WHERE status = 'available'")
    house.restart()
    house.run()
    assert sent(receiver) == ["A A", "B B", "B B"]
    keys = {hit.headers["idempotency-key"] for hit in receiver.hits if hit.body == b"B B"}
    assert len(keys) == 1
    assert statuses(house) == {"cancelled": 1, "succeeded": 1}


def test_what_is_run_again_finds_its_mapping(house: House, receiver: Receiver) -> None:
    receiver.answer = lambda _request, _number: web.Response(status=400)
    function = create(house, receiver, [A, B])
    house.run(stored("A"), stored("B"))
    receiver.hits.clear()
    receiver.answer = lambda _request, _number: web.Response()
    house.change(function, mappings=[B, mapping("A2", "A")])
    assert rerun(house.delivery, house.project, function["id"], RerunFilter(), {}).queued == 2
    house.wait_idle()
    assert sent(receiver) == ["A2 A", "B B"]


def test_events_of_a_batch_find_their_mappings(house: House, receiver: Receiver) -> None:
    function = house.create(
        "fetch(inputs.url, {'body': arrayMap(one -> f'{one.inputs.what} {one.event.event}', events)})",
        values={"url": receiver.url},
        mappings=[A, B, C],
        x_delivery={"batch": {"max_events": 3, "max_wait_ms": 60_000}},
    )
    house.dispatch(stored("A"), stored("B"), stored("C"))
    house.change(function, mappings=[C, B])
    house.run()
    assert [hit.json for hit in receiver.hits] == [["B B", "C C"]]
    assert statuses(house) == {"failed": 1, "succeeded": 2}


def test_an_event_starts_a_new_mapping_that_took_the_place_of_another(
    house: House, receiver: Receiver
) -> None:
    """Nothing that was begun is begun again, and a mapping that is new has begun nothing."""
    function = create(house, receiver, [mapping("first", "A"), mapping("second", "A")])
    event = stored("A")
    house.run(event)
    house.change(function, mappings=[mapping("new", "A"), mapping("first", "A"), mapping("second", "A")])
    again = house.delivery.dispatcher_for(1, "events", function["id"])
    assert again is not None
    again.dispatch([event], log_offset=None)
    house.wait_idle()
    assert sent(receiver) == ["first A", "new A", "second A"]


def test_runs_and_mappings_that_were_stored_by_number(house: House, receiver: Receiver) -> None:
    """What an earlier version left: mappings without ids, and runs and results that have their number."""
    function = create(house, receiver, [A, B])
    with house.database.write() as tx:
        row = tx.connection.exec_driver_sql("SELECT mappings FROM hog_function").scalar()
        plain = [{key: part for key, part in one.items() if key != "id"} for one in orjson.loads(str(row))]
        tx.connection.exec_driver_sql("UPDATE hog_function SET mappings = ?", (orjson.dumps(plain).decode(),))
        tx.changed("functions", 1)
    house.restart()
    house.dispatch(stored("A"), stored("B"), stored("B"))
    with house.queue_database.write() as tx:
        rows = tx.connection.exec_driver_sql("SELECT id, state FROM invocation ORDER BY rowid").all()
        for (invocation_id, state), number in zip(rows, (0, 1, 1), strict=True):
            old = orjson.loads(bytes(state))
            assert old.pop("mapping_id") == str(number)
            values = (orjson.dumps({**old, "mapping": number}), invocation_id)
            tx.connection.exec_driver_sql("UPDATE invocation SET state = ? WHERE id = ?", values)
    house.change(function, mappings=[C, B, A])
    house.run()
    assert sent(receiver) == ["A A", "B B", "B B"]


def test_results_that_were_kept_by_number_can_be_run_again(house: House, receiver: Receiver) -> None:
    receiver.answer = lambda _request, number: web.Response(status=400 if number == 0 else 200)
    function = create(house, receiver, [A, B])
    house.run(stored("B"))
    with house.database.write() as tx:
        stored_mappings = tx.connection.exec_driver_sql("SELECT mappings FROM hog_function").scalar()
        numbered = [{**one, "id": str(at)} for at, one in enumerate(orjson.loads(str(stored_mappings)))]
        tx.connection.exec_driver_sql(
            "UPDATE hog_function SET mappings = ?", (orjson.dumps(numbered).decode(),)
        )
        tx.changed("functions", 1)
    with house.queue_database.write() as tx:
        kept = tx.connection.exec_driver_sql("SELECT invocation_globals FROM invocation_result").scalar()
        old = orjson.loads(zlib.decompress(bytes(kept)))  # type: ignore[arg-type]
        assert isinstance(old.pop("mapping_id"), str)
        packed = sqlite3.Binary(zlib.compress(orjson.dumps({**old, "mapping": 1})))
        tx.connection.exec_driver_sql("UPDATE invocation_result SET invocation_globals = ?", (packed,))
    house.restart()
    house.change(function, mappings=[B, A])
    assert rerun(house.delivery, house.project, function["id"], RerunFilter(), {}).queued == 1
    house.run()
    assert sent(receiver) == ["B B", "B B"]
