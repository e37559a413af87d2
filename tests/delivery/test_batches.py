"""Functions that run once for many events (spec: hog-runtime 11)."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web
from tests.delivery.conftest import House, Receiver, stored
from tests.delivery.test_backfills import EVER, History, history  # noqa: F401 - a fixture
from tests.delivery.test_routes import Api
from tests.waiting import wait_for

from hoglab.accounts.bootstrap import FirstStart
from hoglab.delivery.execution.batch_run import REPORTED, failures
from hoglab.delivery.execution.batches import BATCH_QUEUE

SEND = """
let row := one -> ({'n': one.event.properties.n, 'to': one.inputs.to, 'who': one.person.properties.name})
let rows := arrayMap(row, events)
let answer := fetch(inputs.url, {'body': rows})
print('sent', length(events))
return answer.body.outcomes
"""
WAITS = {"batch": {"max_events": 3, "max_wait_ms": 60_000}}
SOON = {"batch": {"max_events": 100, "max_wait_ms": 10}}


def sender(house: House, receiver: Receiver, delivery: dict[str, Any], **options: Any) -> dict[str, Any]:
    values = {"url": receiver.url, "to": "{event.properties.to}"}
    return house.create(SEND, values=values, x_delivery=delivery, **options)


def numbers(receiver: Receiver) -> list[list[int]]:
    """What the calls were about; batches have no order among each other."""
    return sorted([row["n"] for row in hit.json] for hit in receiver.hits)


def by_event(house: House) -> dict[str, tuple[str, str]]:
    return {each["event_uuid"]: (each["status"], each["error_message"] or "") for each in house.results()}


def test_a_full_batch_is_one_call(house: House, receiver: Receiver) -> None:
    function = sender(house, receiver, WAITS)
    house.delivery.start()
    house.dispatch(*(stored(properties={"n": n, "to": f"t{n}"}, person={"name": f"p{n}"}) for n in range(7)))
    wait_for(lambda: len(receiver.hits) == 2)
    assert numbers(receiver) == [[0, 1, 2], [3, 4, 5]]
    [one] = [row for hit in receiver.hits for row in hit.json if row["n"] == 1]
    assert one == {"n": 1, "to": "t1", "who": "p1"}
    wait_for(lambda: house.queue.counts.backlog() == 1)  # the seventh waits for others
    assert house.metrics(function) == {"triggered": 7, "fetch": 2, "succeeded": 6}
    assert ("info", "sent, 3") in house.logs(function)


def test_what_has_waited_long_enough_goes_alone(house: House, receiver: Receiver) -> None:
    sender(house, receiver, SOON)
    house.run(stored(properties={"n": 1}))
    assert numbers(receiver) == [[1]]


def test_each_event_has_an_outcome_of_its_own(house: House, receiver: Receiver) -> None:
    outcomes = [True, False, "full", {"error": {"code": 7}}, None, {"ok": True}]
    receiver.answer = lambda _request, number: web.json_response({"outcomes": outcomes} if not number else {})
    function = sender(house, receiver, {"batch": {"max_events": 6}})
    events = [stored(properties={"n": n}) for n in range(6)]
    house.run(*events)
    found = by_event(house)
    assert [found[str(event.row.uuid)] for event in events] == [
        ("succeeded", ""),
        ("failed", REPORTED),
        ("failed", "full"),
        ("failed", '{"code":7}'),
        ("succeeded", ""),
        ("succeeded", ""),
    ]
    assert house.metrics(function) == {"triggered": 6, "fetch": 1, "succeeded": 3, "failed": 3}
    lines = [text for level, text in house.logs(function) if level == "error"]
    assert lines[1] == f"Error executing function on event {events[2].row.uuid}: full"


def test_what_failed_is_run_again_alone(house: House, receiver: Receiver, api: Api) -> None:
    receiver.answer = lambda _request, number: web.json_response(
        {"outcomes": [True, False]} if not number else {}
    )
    function = sender(house, receiver, {"batch": {"max_events": 2}})
    house.run(stored(properties={"n": 1}), stored(properties={"n": 2}))
    answer = api.call("POST", f"/{function['id']}/rerun/", {}).json()
    assert answer["queued_count"] == 1
    house.wait_idle()
    assert numbers(receiver) == [[1, 2], [2]]
    assert {status for status, _ in by_event(house).values()} == {"succeeded"}


def test_a_refused_request_fails_every_event_after_its_attempts(house: House, receiver: Receiver) -> None:
    receiver.answer = lambda _request, _number: web.Response(status=503)
    function = sender(house, receiver, {"batch": {"max_events": 2}})
    house.run(stored(properties={"n": 1}), stored(properties={"n": 2}))
    assert numbers(receiver) == [[1, 2]] * 3
    assert len({hit.headers["idempotency-key"] for hit in receiver.hits}) == 1
    assert {status for status, _ in by_event(house).values()} == {"failed"}
    assert house.metrics(function) == {"triggered": 2, "fetch": 1, "failed": 2}
    assert len(house.results()) == 2


def test_an_event_whose_inputs_fail_is_left_out(house: House, receiver: Receiver) -> None:
    receiver.answer = lambda _request, number: web.json_response({}, status=200 if number else 503)
    function = sender(house, receiver, WAITS)
    texts = ('"a"', "{", '"c"')
    events = [stored(properties={"n": n, "to": to}) for n, to in enumerate(texts)]
    house.dispatch(*events)
    house.change(function, inputs={**function["inputs"], "to": {"value": "{jsonParse(event.properties.to)}"}})
    house.run()
    assert numbers(receiver) == [[0, 2], [0, 2]]  # the second attempt has what the first had
    assert [row["to"] for row in receiver.hits[1].json] == ["a", "c"]
    found = [by_event(house)[str(event.row.uuid)] for event in events]
    assert [status for status, _ in found] == ["succeeded", "failed", "succeeded"]
    assert found[1][1].startswith("Error building inputs: ")
    [kind] = {each["error_kind"] for each in house.results() if each["status"] == "failed"}
    assert kind == "inputs_failed"


def test_a_list_of_the_wrong_length_fails_all(house: House, receiver: Receiver) -> None:
    receiver.answer = lambda _request, _number: web.json_response({"outcomes": [True]})
    sender(house, receiver, {"batch": {"max_events": 2}})
    house.run(stored(properties={"n": 1}), stored(properties={"n": 2}))
    error = "The program returned 1 outcomes for 2 events."
    assert set(by_event(house).values()) == {("failed", error)}


def test_a_batch_goes_on_after_a_restart(house: House, receiver: Receiver) -> None:
    sender(house, receiver, WAITS)
    events = [stored(properties={"n": n}) for n in range(3)]
    house.dispatch(*events)
    context = house.delivery.worker.context
    sizes = {function: context.batch_size(function) for function in house.queue.gathering(BATCH_QUEUE)}
    assert house.queue.gather(BATCH_QUEUE, sizes, context.merge) == 1
    assert house.queue.counts.backlog() == 1
    assert {status for status, _ in by_event(house).values()} == {"running"}
    assert len(house.queue.claim()) == 1
    house.restart()
    house.run()
    assert numbers(receiver) == [[0, 1, 2]]
    house.dispatch(*events)  # the log is read again
    assert house.queue.counts.backlog() == 0


def test_a_batch_that_was_made_is_run_as_one_whatever_the_function_is_then(
    house: House, receiver: Receiver
) -> None:
    function = sender(house, receiver, WAITS)
    house.dispatch(*(stored(properties={"n": n}) for n in range(4)))
    context = house.delivery.worker.context
    sizes = {each: context.batch_size(each) for each in house.queue.gathering(BATCH_QUEUE)}
    assert house.queue.gather(BATCH_QUEUE, sizes, context.merge) == 1
    house.change(function, x_delivery=None, hog="fetch(inputs.url, {'body': [{'n': event.properties.n}]})")
    house.run()
    assert numbers(receiver) == [[0, 1, 2], [3]]
    assert {status for status, _ in by_event(house).values()} == {"succeeded"}
    assert house.metrics(function)["succeeded"] == 4


def test_events_of_disabled_functions_are_cancelled(house: House, receiver: Receiver) -> None:
    function = sender(house, receiver, WAITS)
    house.dispatch(stored(properties={"n": 1}))
    house.change(function, enabled=False)
    house.run()
    assert receiver.hits == []
    assert {status for status, _ in by_event(house).values()} == {"cancelled"}


def test_secrets_of_every_event_are_hidden(house: House, receiver: Receiver) -> None:
    function = house.create(
        "print(inputs.key, events[2].inputs.key); throw Error(events[1].inputs.key)",
        secrets={"key": "secret-of-{event.distinct_id}"},
        x_delivery={"batch": {"max_events": 2, "max_wait_ms": 60_000}},
    )
    house.run(stored(distinct_id="ann"), stored(distinct_id="bob"))
    everything = str(house.logs(function)) + str(house.results())
    assert "REDACTED" in everything
    assert "secret-of" not in everything


def test_history_is_batched_too(house: House, receiver: Receiver, history: History) -> None:  # noqa: F811
    history.keep_numbers(6)
    function = sender(house, receiver, WAITS)
    done = history.finish(history.begin(function, range=EVER))
    assert done.queued == 6
    house.run()
    assert numbers(receiver) == [[0, 1, 2], [3, 4, 5]]
    assert history.finish(history.begin(function)).already_run == 6


@pytest.fixture
def api(house: House, prepared: tuple[Any, FirstStart]) -> Api:
    return Api(house, prepared[1].api_key)


def test_a_test_run_is_a_batch_of_one(house: House, api: Api) -> None:
    function = house.create(
        "print(length(events), events[1].event.event); return [events[1].event.event == 'good']",
        x_delivery=SOON,
    )
    event = {"uuid": "0199a3d4-aaaa-7000-8000-000000000009", "distinct_id": "d", "properties": {}}
    for name, status in (("good", "success"), ("bad", "error")):
        answer = api.try_out(
            {"configuration": {}, "globals": {"event": {**event, "event": name}}}, function["id"]
        )
        assert (answer["status"], answer["logs"][0]["message"]) == (status, f"1, {name}")
    assert answer["errors"] == [REPORTED]


def test_events_of_a_mapping_that_is_gone_are_left_out(house: House, receiver: Receiver) -> None:
    mappings = [{"name": name, "filters": {"events": [{"id": name, "type": "events"}]}} for name in "ab"]
    function = house.create(
        "fetch(inputs.url, {'body': arrayMap(one -> one.event.event, events)})",
        values={"url": receiver.url},
        mappings=mappings,
        x_delivery={"batch": {"max_events": 2, "max_wait_ms": 60_000}},
    )
    house.dispatch(stored("a"), stored("b"))
    house.change(function, mappings=[mappings[0], {**mappings[1], "disabled": True}])
    house.run()
    assert [hit.json for hit in receiver.hits] == [["a"]]
    found = {one["status"]: one["error_message"] for one in house.results()}
    assert found == {"succeeded": None, "failed": "The mapping of the function is disabled or deleted."}


def test_outcomes_are_read_strictly() -> None:
    assert failures(None, 3) == failures({"a": 1}, 3) == failures([1, {}, {"error": ""}], 3) == {}
    assert failures([False, "", {"ok": False}], 3) == {0: REPORTED, 1: REPORTED, 2: REPORTED}
    with pytest.raises(ValueError, match="2 outcomes for 3 events"):
        failures([True, True], 3)
