"""Events in, requests out: the whole way of an invocation (spec: hog-runtime 4)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from aiohttp import web
from tests.contract.rules import rule
from tests.delivery.conftest import House, Receiver, stored
from tests.waiting import wait_for

from hoglab.demo.run import FORWARD_PURCHASE

WORKED_EXAMPLE = (
    "let r := fetch(inputs.url, {'method':'POST','body':inputs.body}); "
    "if (r.status >= 400) { throw Error(f'bad {r.status}') } print('ok', r.status)"
)
BODY = {"who": "{person.name}", "co": "{groups.company.id}", "props": "{event.properties}"}


def statuses(*given: int) -> Any:
    """Answers with these statuses, one after the other, then with the last one for ever."""

    def answer(_request: web.Request, number: int) -> web.Response:
        return web.json_response({"id": 9}, status=given[min(number, len(given) - 1)])

    return answer


def worked_example(house: House, receiver: Receiver) -> dict[str, Any]:
    function = house.create(WORKED_EXAMPLE, values={"url": f"{receiver.url}/in", "body": BODY})
    with house.database.write() as tx:
        tx.connection.exec_driver_sql(
            "INSERT INTO group_type (project_id, group_type, group_type_index, created_at) "
            "VALUES (1, 'company', 0, 0)"
        )
        tx.changed("group_types", 1)
    properties = {"plan": "pro", "$groups": {"company": "acme"}}
    house.run(stored("signup", properties, person={"email": "ann@acme.io"}, groups={0: "acme"}))
    return function


def test_a_request_that_fails_once_is_sent_again_with_the_same_key(house: House, receiver: Receiver) -> None:
    receiver.answer = statuses(503, 200)
    function = worked_example(house, receiver)

    assert [hit.json for hit in receiver.hits] == [
        {"who": "ann@acme.io", "co": "acme", "props": {"plan": "pro", "$groups": {"company": "acme"}}}
    ] * 2
    [result] = house.results()
    keys = {hit.headers["idempotency-key"] for hit in receiver.hits}
    assert keys == {f"{result['invocation_id']}-0"}
    assert result["status"] == "succeeded"
    assert (result["attempts"], result["is_retry"], result["error_message"]) == (1, 0, None)
    assert house.metrics(function) == {"triggered": 1, "fetch": 1, "succeeded": 1}
    logs = house.logs(function)
    assert logs[:2] == [
        ("error", "HTTP fetch failed on attempt 1 with status code 503. Retrying."),
        ("info", "ok, 200"),
    ]
    level, text = logs[2]
    assert level == "debug"
    assert re.fullmatch(
        r"Function completed in [\d.]+ms\. Sync: [\d.]+ms\. Mem: [\d.]+kb\. Ops: \d+\. "
        r"Event: 'https://h\.example/project/1/events/[0-9a-f-]{36}/2026-01-01T10%3A00%3A00\.000Z'",
        text,
    )
    assert len(logs) == 3


@rule("H3.2")
def test_three_failed_attempts_end_an_invocation(house: House, receiver: Receiver) -> None:
    receiver.answer = statuses(503)
    function = worked_example(house, receiver)

    assert len(receiver.hits) == 3
    assert house.metrics(function) == {"triggered": 1, "fetch": 1, "failed": 1}
    [result] = house.results()
    assert result["status"] == "failed"
    assert result["error_message"] == "Error('bad 503')"
    event = result["event_uuid"]
    assert house.logs(function) == [
        ("error", "HTTP fetch failed on attempt 1 with status code 503. Retrying."),
        ("error", "HTTP fetch failed on attempt 2 with status code 503. Retrying."),
        ("error", "HTTP fetch failed on attempt 3 with status code 503."),
        ("error", f"Error executing function on event {event}: Error('bad 503')"),
    ]


@pytest.mark.parametrize("status", [400, 401, 404, 410, 501])
@rule("H3.3")
def test_other_failures_are_not_tried_again_and_fail_the_run_though_the_program_goes_on(
    house: House, receiver: Receiver, status: int
) -> None:
    receiver.answer = statuses(status)
    function = house.create(
        "let r := fetch(inputs.url) print('got', r.status, r.body)", values={"url": receiver.url}
    )
    house.run(stored())

    assert len(receiver.hits) == 1
    assert house.metrics(function) == {"triggered": 1, "fetch": 1, "failed": 1}
    [result] = house.results()
    message = f"HTTP fetch failed on attempt 1 with status code {status}."
    assert result["error_message"] == message
    assert result["error_kind"] == ("http_4xx" if status < 500 else "http_5xx")
    assert house.logs(function)[:2] == [("error", message), ("info", f'got, {status}, {{"id":9}}')]


def test_the_function_of_the_demo_delivers(house: House, receiver: Receiver) -> None:
    function = house.create(
        FORWARD_PURCHASE,
        values={"url": receiver.url},
        filters={"events": [{"id": "purchase", "type": "events"}]},
    )
    events = [stored("purchase", {"amount": n}, person={"email": f"{n}@x.io"}) for n in range(300)]
    house.run(*events, *[stored("$pageview", {}) for _ in range(50)])

    assert {(hit.json["uuid"], hit.json["amount"], hit.json["email"]) for hit in receiver.hits} == {
        (str(event.row.uuid), event.properties["amount"], f"{event.properties['amount']}@x.io")
        for event in events
    }
    assert len(receiver.hits) == 300
    assert house.metrics(function) == {"triggered": 300, "fetch": 300, "succeeded": 300, "filtered": 50}
    assert all(result["status"] == "succeeded" for result in house.results())


@rule("H4.6")
def test_a_batch_that_is_dispatched_again_starts_nothing_twice(house: House, receiver: Receiver) -> None:
    house.create("fetch(inputs.url)", values={"url": receiver.url})
    event = stored()
    house.run(event)
    house.delivery.dispatcher.dispatch([event], log_offset=house.offset)
    house.run(stored())
    wait_for(lambda: len(receiver.hits) >= 2)
    assert len(receiver.hits) == 2
    assert house.delivery.dispatcher.position() == house.offset
