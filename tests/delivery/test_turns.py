"""What programs may do, and what is kept between their turns (spec: hog-runtime 3, 4)."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography.fernet import Fernet
from sqlalchemy import text
from tests.contract.rules import rule
from tests.delivery.conftest import House, Receiver, stored
from tests.waiting import wait_for

from hoglab.delivery.execution.capturing import CaptureRefusedError
from hoglab.delivery.execution.retries import RetryPolicy, excused
from hoglab.delivery.execution.turn import UNUSABLE
from hoglab.delivery.outbound.addresses import AddressGuard
from hoglab.delivery.outbound.fetch import FetchFailure, FetchLimits, FetchResponse
from hoglab.delivery.replay.reruns import RerunFilter, rerun
from hoglab.delivery.runs.results import error_kind
from hoglab.delivery.worker import WorkerLimits
from hoglab.functions.runtime import registry as registry_module
from hoglab.storage.database.errors import DatabaseBusyError

ALLOWANCE = (
    "the operator of the server may allow it with HOGLAB_FETCH_ALLOW_CIDRS or HOGLAB_FETCH_ALLOW_HOSTS"
)
SLOW_RETRY = RetryPolicy(step_s=60.0, jitter_s=0.0, max_backoff_s=60.0)


def infos(house: House, function: dict[str, Any]) -> list[str]:
    return [text for level, text in house.logs(function) if level == "info"]


def errors(house: House, function: dict[str, Any]) -> list[str]:
    return [text for level, text in house.logs(function) if level == "error"]


def suspended_once(house: House, *events: Any) -> None:
    """Run until an invocation has been put back to wait for its next attempt."""
    house.dispatch(*events)
    house.delivery.start()
    wait_for(lambda: house.rows("invocation_result", "status", "version") == [("running",)])
    assert house.delivery.stop(10)


# --- requests


def test_a_request_says_what_the_program_says(house: House, receiver: Receiver) -> None:
    house.create(
        """
        fetch(inputs.url)
        fetch(inputs.url, {'method': 'PUT', 'headers': {'X-Number': 5, 'X-Flag': true, 'X-None': null, 'X-List': [1]},
                           'body': 'text'})
        fetch(inputs.url, {'body': {'a': [1, 2.5, null]}})
        fetch(inputs.url, {'method': 'GET', 'body': 'ignored', 'headers': {'idempotency-key': 'mine'}})
        """,
        values={"url": receiver.url},
    )
    house.run(stored())
    run_id = house.results()[0]["invocation_id"]
    first, second, third, fourth = receiver.hits
    assert (first.method, first.body, first.headers["content-type"]) == ("POST", b"", "application/json")
    assert (second.method, second.body) == ("PUT", b"text")
    assert (second.headers["x-number"], second.headers["x-flag"]) == ("5", "true")
    assert not {"x-none", "x-list", "content-type"} & {
        name
        for name in second.headers
        if name != "content-type" or second.headers[name] == "application/json"
    }
    assert third.body == b'{"a":[1,2.5,null]}'
    assert (fourth.method, fourth.body) == ("GET", b"")
    keys = [hit.headers["idempotency-key"] for hit in receiver.hits]
    assert keys == [f"{run_id}-0", f"{run_id}-1", f"{run_id}-2", "mine"]


def test_a_program_sees_status_body_and_headers(house: House, receiver: Receiver) -> None:
    receiver.answer = lambda _request, _number: web.Response(
        text="plain", headers={"X-Kind": "a"}, status=201
    )
    function = house.create(
        "let r := fetch(inputs.url) print(r.status, r.body, r.headers['x-kind'])",
        values={"url": receiver.url},
    )
    house.run(stored())
    assert infos(house, function) == ["201, plain, a"]


@pytest.mark.parametrize(
    ("url", "detail"),
    [
        (
            "http://10.0.0.1/",
            "Hostname is not allowed: 10.0.0.1 is not a public address; " + ALLOWANCE,
        ),
        (
            "http://169.254.169.254/latest/",
            "Hostname is not allowed: 169.254.169.254 is an address of cloud metadata, which is never reached",
        ),
        ("ftp://a.example/", "Scheme must be either HTTP or HTTPS"),
        ("nonsense", "Invalid URL"),
    ],
)
@rule("H3.4")
def test_refused_requests_fail_at_once(house: House, url: str, detail: str) -> None:
    function = house.create("print(fetch(inputs.url).status)", values={"url": url})
    house.run(stored())
    message = f"HTTP fetch failed on attempt 1 with status code (none). Error: {detail}."
    assert errors(house, function) == [message]
    assert infos(house, function) == ["500"]
    assert house.results()[0]["error_message"] == message


def test_a_url_that_is_no_text_is_an_answer_too(house: House) -> None:
    function = house.create("print(fetch(null).body)")
    house.run(stored())
    assert infos(house, function) == ["TypeError: Invalid URL"]


@pytest.fixture
def hasty(house: House) -> House:
    """With a short time for requests."""
    house.close()
    house.options = {"fetch": FetchLimits(total_s=0.2, max_response_bytes=1000)}
    house.open()
    return house


def test_a_destination_that_hangs_is_tried_three_times(hasty: House, receiver: Receiver) -> None:
    receiver.answer = lambda _request, _number: asyncio.sleep(60)
    function = hasty.create("print(fetch(inputs.url).body)", values={"url": receiver.url})
    hasty.run(stored())
    detail = "The request timed out after 0.2 s"
    told = f"{detail}: it was waiting for an answer"
    texts = [f"HTTP fetch failed on attempt {n} with status code (none). Error: {told}." for n in (1, 2, 3)]
    assert errors(hasty, function) == [f"{texts[0]} Retrying.", f"{texts[1]} Retrying.", texts[2]]
    assert infos(hasty, function) == [f"TimeoutError: {detail}"]
    assert hasty.results()[0]["error_kind"] == "timeout"
    assert hasty.metrics(function) == {"triggered": 1, "fetch": 1, "failed": 1}


def test_a_connection_that_breaks_is_tried_again(house: House, receiver: Receiver) -> None:
    def answer(request: web.Request, number: int) -> web.StreamResponse:
        if number < 3:  # one attempt is two tries
            assert request.transport is not None
            request.transport.abort()
        return web.json_response({})

    receiver.answer = answer
    function = house.create("print(fetch(inputs.url).status)", values={"url": receiver.url})
    house.run(stored())
    assert infos(house, function) == ["200"]
    assert len(errors(house, function)) == 1
    assert "Retrying." in errors(house, function)[0]


def test_a_huge_response_is_cut(hasty: House, receiver: Receiver) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write(b"x" * 1_000_000)
        return response

    receiver.answer = lambda request, _number: answer(request)
    function = hasty.create("print(length(fetch(inputs.url).body))", values={"url": receiver.url})
    hasty.run(stored())
    assert infos(hasty, function) == ["1000"]
    assert [text for level, text in hasty.logs(function) if level == "warn"] == [
        "The response was too large; the rest of its body was cut off."
    ]


def test_statuses_that_a_function_excuses_do_not_fail_it(house: House, receiver: Receiver) -> None:
    receiver.answer = lambda _request, _number: web.Response(status=404)
    schema = [
        {"key": "url", "type": "string"},
        {"key": "fine", "type": "non_failure_status_codes"},
    ]
    inputs = {"url": {"value": receiver.url}, "fine": {"value": [404, "5xx"]}}
    function = house.create("print(fetch(inputs.url).status)", inputs_schema=schema, inputs=inputs)
    house.run(stored())
    assert house.metrics(function) == {"triggered": 1, "fetch": 1, "succeeded": 1}
    assert infos(house, function) == ["HTTP fetch failed on attempt 1 with status code 404.", "404"]
    assert errors(house, function) == []


def test_after_a_failed_request_there_is_no_second_one(house: House, receiver: Receiver) -> None:
    receiver.answer = lambda _request, _number: web.Response(status=400)
    function = house.create(
        "fetch(inputs.url) print('went on') fetch(inputs.url) print('not here')", values={"url": receiver.url}
    )
    house.run(stored())
    assert len(receiver.hits) == 1
    assert infos(house, function) == ["went on"]
    assert house.results()[0]["error_message"] == "HTTP fetch failed on attempt 1 with status code 400."


@rule("H5.3")
def test_five_requests_are_allowed(house: House, receiver: Receiver) -> None:
    code = "let i := 0 while (i < inputs.n) { fetch(inputs.url, {'body': toString(i)}) i := i + 1 } print('end', i)"
    five = house.create(code, values={"url": f"{receiver.url}/5", "n": 5})
    six = house.create(code, values={"url": f"{receiver.url}/6", "n": 6})
    house.run(stored())
    assert [hit.body for hit in receiver.hits if hit.path == "/5"] == [b"0", b"1", b"2", b"3", b"4"]
    assert infos(house, five) == ["end, 5"]
    assert len([hit for hit in receiver.hits if hit.path == "/6"]) == 5
    [text] = errors(house, six)
    assert text.endswith(": Exceeded maximum number of async steps: 5")
    assert house.metrics(five) == {"triggered": 1, "fetch": 5, "succeeded": 1}
    assert house.metrics(six) == {"triggered": 1, "fetch": 5, "failed": 1}


def test_unknown_calls_end_the_run(house: House) -> None:
    function = house.create("sendPushNotification({'to': 'a'})")
    house.run(stored())
    assert house.results()[0]["error_message"] == "Unknown async function 'sendPushNotification'"
    assert house.metrics(function)["failed"] == 1


# --- retry policy


def answer_of(status: int, **headers: str) -> FetchResponse:
    return FetchResponse(status, "", headers)


@rule("H3.1")
def test_delays_grow_and_listen_to_the_other_side() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    policy = RetryPolicy(random=lambda: 0.5)

    def delay(answer: FetchResponse | FetchFailure, attempts: int = 1) -> float | None:
        return policy.delay_s(answer, attempts, now)

    assert [delay(answer_of(503), attempts) for attempts in (1, 2, 3)] == [1.5, 2.5, None]
    assert delay(answer_of(429, **{"retry-after": "20"})) == 20.5
    assert delay(answer_of(503, **{"retry-after": "100000"})) == 300
    assert delay(answer_of(500, **{"retry-after": "20"})) == 1.5
    later = format_datetime(now + timedelta(seconds=30), usegmt=True)
    assert delay(answer_of(429, **{"retry-after": later})) == 30.5
    for nonsense in ("soon", "-5", "Thu, 99 Xxx 2026", ""):
        assert delay(answer_of(429, **{"retry-after": nonsense})) == 1.5
    transient = {408, 425, 429, 500, 502, 503, 504, *range(520, 530)}
    assert {status for status in range(200, 600) if delay(answer_of(status)) == 1.5} == transient
    assert {status for status in range(200, 600) if delay(answer_of(status)) is None} == set(
        range(200, 600)
    ) - transient
    assert delay(answer_of(529, **{"retry-after": "20"})) == 20.5
    assert delay(FetchFailure("dns", "ResolutionError", "Invalid hostname")) == 1.5
    assert delay(FetchFailure("blocked", "SecureRequestError", "Hostname is not allowed")) is None
    assert RetryPolicy(max_attempts=100, random=lambda: 0.5).delay_s(answer_of(500), 60, now) == 30


def test_excused_statuses() -> None:
    assert excused(404, [404])
    assert excused(404, ["4xx"])
    assert excused(503, ["5XX", 200])
    assert not excused(500, ["4xx", 404])
    assert not excused(404, [])


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("The request timed out after 10 s", "timeout"),
        ("Execution timed out after 1 seconds. Performed 3 ops.", "timeout"),
        ("HTTP fetch failed on attempt 3 with status code 503.", "http_5xx"),
        ("HTTP fetch failed on attempt 1 with status code 404.", "http_4xx"),
        ("Error('bad status 429')", "http_4xx"),
        ("Memory limit of 67108864 bytes exceeded. Tried to allocate 9 bytes.", "oom"),
        ("Error('nope')", "hog_error"),
    ],
)
def test_kinds_of_errors(message: str, kind: str) -> None:
    assert error_kind(message) == kind


# --- printing


@rule("H5.4")
def test_print_joins_with_commas_and_stops_after_24_lines(house: House) -> None:
    function = house.create("let i := 0 while (i < 30) { print('line', i, {'a': [1]}, null) i := i + 1 }")
    house.run(stored())
    lines = infos(house, function)
    assert lines == [f'line, {n}, {{"a":[1]}}, null' for n in range(24)]
    uuid = house.results()[0]["event_uuid"]
    assert [text for level, text in house.logs(function) if level == "warn"] == [
        f"Function exceeded maximum log entries. No more logs will be collected. Event: {uuid}"
    ]


def test_long_lines_are_cut(house: House) -> None:
    function = house.create(
        "print(repeat('x', 20000))" if False else "print(inputs.long)", values={"long": "é" * 10_001}
    )
    house.run(stored())
    [line] = infos(house, function)
    assert line == "é" * 9_985 + "... (truncated)"


@rule("F16.3")
def test_lines_of_a_run_are_in_order_and_printed_once(house: House, receiver: Receiver) -> None:
    receiver.answer = lambda _request, number: web.Response(status=503 if number == 1 else 200)
    function = house.create(
        "print('a') fetch(inputs.url) print('b') fetch(inputs.url) print('c')", values={"url": receiver.url}
    )
    house.run(stored())
    assert infos(house, function) == ["a", "b", "c"]
    stamps = [row[0] for row in house.rows("log_entry", "timestamp", "id")]
    assert stamps == sorted(set(stamps))


# --- errors


@rule("H5.1")
def test_errors_end_runs_with_their_text(house: House) -> None:
    thrown = house.create("throw Error('x')")
    endless = house.create("while (true) {}")
    event = stored()
    house.run(event)
    prefix = f"Error executing function on event {event.row.uuid}: "
    assert errors(house, thrown) == [f"{prefix}Error('x')"]
    [text] = errors(house, endless)
    assert text.startswith(f"{prefix}Execution timed out after 1 seconds. Performed ")
    kinds = {result["function_id"]: result["error_kind"] for result in house.results()}
    assert kinds == {thrown["id"]: "hog_error", endless["id"]: "timeout"}


@rule("H5.2")
def test_the_memory_limit_has_its_text(house: House) -> None:
    house.create("let s := 'x' while (true) { s := concat(s, s) }")
    house.run(stored())
    [result] = house.results()
    text = r"Memory limit of 67108864 bytes exceeded\. Tried to allocate \d+ bytes\."
    assert re.fullmatch(text, result["error_message"])
    assert result["error_kind"] == "oom"


# --- secrets


@rule("H5.5")
def test_secrets_are_nowhere_but_in_the_request(house: House, receiver: Receiver) -> None:
    secret = 'Bearer s3cr3t"\\key'
    house.close()
    house.options = {"retries": SLOW_RETRY}
    house.open()
    receiver.answer = lambda _request, number: web.Response(status=503 if number == 0 else 200)
    function = house.create(
        """
        print('key', inputs.key, {'k': inputs.key})
        fetch(inputs.url, {'headers': {'Authorization': inputs.key, 'X-Plain': inputs.plain}})
        throw Error(f'cannot use {inputs.key} at /?k={encodeURLComponent(inputs.key)}')
        """,
        secrets={"key": secret},
        values={"url": receiver.url, "plain": "visible"},
    )
    suspended_once(house, stored())
    assert receiver.hits[0].headers["authorization"] == secret

    def everything() -> bytes:
        with sqlite3.connect(house.folder / "queue.db") as connection:
            return "\n".join(connection.iterdump()).encode() + _blobs(house.folder)

    assert b"s3cr3t" not in everything()
    assert infos(house, function) == ['key, ***REDACTED***, {"k":"***REDACTED***"}']
    _make_due(house)
    house.restart()
    house.run()
    assert receiver.hits[1].headers["authorization"] == secret
    assert b"s3cr3t" not in everything()
    [result] = house.results()
    assert result["error_message"] == "Error('cannot use ***REDACTED*** at /?k=***REDACTED***')"


def _blobs(folder: Path) -> bytes:
    with sqlite3.connect(folder / "queue.db") as connection:
        return b"".join(row[0] for row in connection.execute("SELECT state FROM invocation"))


def _make_due(house: House) -> None:
    with house.queue_database.write() as tx:
        tx.connection.exec_driver_sql("UPDATE invocation SET scheduled_at = 0 WHERE status = 'available'")


# --- between turns


@rule("H4.3")
def test_what_is_suspended_goes_on_with_its_own_code_and_inputs(house: House, receiver: Receiver) -> None:
    house.close()
    house.options = {"retries": SLOW_RETRY}
    house.open()
    receiver.answer = lambda _request, number: web.Response(status=503 if number == 0 else 200)
    function = house.create(
        "fetch(inputs.url, {'body': inputs.text}) print('old', inputs.text)",
        values={"url": receiver.url, "text": "before"},
    )
    suspended_once(house, stored())
    house.change(function, hog="print('new')", inputs={"url": {"value": "x"}, "text": {"value": "after"}})
    _make_due(house)
    house.restart()
    house.run()
    assert [hit.body for hit in receiver.hits] == [b"before", b"before"]
    assert receiver.hits[0].headers["idempotency-key"] == receiver.hits[1].headers["idempotency-key"]
    assert infos(house, function) == ["old, before"]


def test_a_run_of_a_function_that_is_gone_is_cancelled(house: House, receiver: Receiver) -> None:
    function = house.create("fetch(inputs.url)", values={"url": receiver.url})
    house.dispatch(stored())
    house.change(function, enabled=False)
    house.run()
    assert receiver.hits == []
    assert house.results()[0]["status"] == "cancelled"
    assert house.metrics(function) == {"triggered": 1}
    assert infos(house, function) == ["The function is disabled or deleted, so this run of it was cancelled."]


MAPPED: dict[str, Any] = {
    "name": "mapped",
    "inputs_schema": [{"key": "what", "type": "string"}],
    "inputs": {"what": {"value": "of the mapping"}},
    "filters": {},
}


@pytest.mark.parametrize("mappings", [[], [{**MAPPED, "disabled": True}], None])
def test_a_run_of_a_mapping_that_is_gone_is_cancelled(
    house: House, receiver: Receiver, mappings: list[Any] | None
) -> None:
    function = house.create("fetch(inputs.url)", values={"url": receiver.url}, mappings=[MAPPED])
    house.dispatch(stored())
    house.change(function, mappings=mappings)
    house.run()
    assert receiver.hits == []
    assert [text for _, text in house.logs(function)] == [
        "The mapping of the function is disabled or deleted. This run of it was cancelled."
    ]
    assert [one["status"] for one in house.results()] == ["cancelled"]


def test_a_mapping_that_goes_between_two_turns_ends_its_run(house: House, receiver: Receiver) -> None:
    receiver.answer = lambda _request, number: web.Response(status=503 if number == 0 else 200)
    house.options["retries"] = SLOW_RETRY
    house.restart()
    function = house.create(
        "fetch(inputs.url, {'body': inputs.what})", values={"url": receiver.url}, mappings=[MAPPED]
    )
    suspended_once(house, stored())
    house.change(function, mappings=[])
    _make_due(house)
    house.restart()
    house.run()
    assert [hit.body for hit in receiver.hits] == [b"of the mapping"]
    assert [one["status"] for one in house.results()] == ["cancelled"]


def test_a_destination_that_honours_keys_does_what_is_run_again(house: House, receiver: Receiver) -> None:
    """It answers a key that it knows as it did before, as many payment APIs do; attempts of a run share theirs."""
    known: dict[str, int] = {}
    is_well = False

    def answer(request: web.Request, number: int) -> web.Response:
        fresh = (503 if number == 0 else 400) if not is_well else 200
        key = request.headers["Idempotency-Key"]
        status = known.get(key, fresh)
        if status != 503:
            known[key] = status
        return web.Response(status=status)

    receiver.answer = answer
    function = house.create("fetch(inputs.url)", values={"url": receiver.url})
    house.run(stored())
    run_id = house.results()[-1]["invocation_id"]
    for repeat, status in ((1, "failed"), (2, "succeeded")):
        is_well = repeat == 2
        assert rerun(house.delivery, house.project, function["id"], RerunFilter(), {}).queued == 1
        house.wait_idle()
        assert house.results()[-1]["status"] == status
    keys = [hit.headers["idempotency-key"] for hit in receiver.hits]
    assert keys == [f"{run_id}-0", f"{run_id}-0", f"{run_id}-r1-0", f"{run_id}-r2-0"]


def test_runs_of_a_function_whose_secrets_cannot_be_read_can_be_run_again(
    house: House, receiver: Receiver
) -> None:
    function = house.create("fetch(inputs.url)", values={"url": receiver.url}, secrets={"key": "s3cr3t"})
    other = house.create("return 1")
    house.dispatch(stored())
    right, house.key = house.key, Fernet.generate_key().decode()
    house.restart()
    house.run()
    assert receiver.hits == []
    assert errors(house, function) == [UNUSABLE]
    assert house.metrics(function) == {"triggered": 1, "failed": 1}
    assert house.metrics(other) == {"triggered": 1, "succeeded": 1}
    house.key = right
    house.restart()
    house.delivery.start()
    assert rerun(house.delivery, house.project, function["id"], RerunFilter(), {}).queued == 1
    house.wait_idle()
    assert len(receiver.hits) == 1


@pytest.mark.logs_exceptions
def test_a_function_that_cannot_be_compiled_leaves_the_others_running(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, other = house.create("return 1"), house.create("return 2")
    compiled = registry_module.compile_function

    def compile_function(row: Any, *rest: Any) -> Any:
        if row["id"] == broken["id"]:
            raise KeyError("a row of a newer program")
        return compiled(row, *rest)

    monkeypatch.setattr(registry_module, "compile_function", compile_function)
    house.restart()
    house.run(stored())
    assert house.metrics(broken) == {}
    assert house.metrics(other) == {"triggered": 1, "succeeded": 1}


def test_sleep_waits_without_a_worker(house: House) -> None:
    function = house.create("print('a') sleep(0.3) print('b', sleep('long'))")
    house.dispatch(stored())
    house.delivery.start()
    wait_for(lambda: infos(house, function) == ["a"])
    with house.queue_database.read() as connection:
        found = connection.exec_driver_sql("SELECT status, scheduled_at FROM invocation").one()
    assert found[0] == "available"
    house.wait_idle()
    assert infos(house, function) == ["a", "b, null"]
    assert [text for level, text in house.logs(function) if level == "warn"] == [
        "sleep takes a number of seconds from 0 to 86400; it did not wait."
    ]
    assert house.metrics(function) == {"triggered": 1, "succeeded": 1}


def test_a_clock_that_is_set_back_lengthens_no_sleep(house: House) -> None:
    function = house.create("sleep(600) print('up')")
    house.dispatch(stored())
    house.delivery.start()
    soon = datetime.now(UTC) + timedelta(seconds=60)
    wait_for(lambda: (due := house.queue.counts.next_due()) is not None and due > soon)
    assert house.delivery.stop(10)
    with house.queue_database.write() as tx:  # as the queue does it when the clock goes back
        tx.execute(text("UPDATE invocation SET scheduled_at = 0"))
    house.restart()
    house.run()
    assert infos(house, function) == ["up"]


def test_results_of_a_run_replace_earlier_ones_when_the_clock_was_set_back(
    house: House, receiver: Receiver
) -> None:
    receiver.answer = lambda _request, number: web.Response(status=503 if number == 0 else 200)
    house.options["retries"] = SLOW_RETRY
    house.restart()
    house.create("fetch(inputs.url)", values={"url": receiver.url})
    suspended_once(house, stored())
    with house.queue_database.write() as tx:
        tx.execute(text("UPDATE invocation_result SET version = version + 86400 * 1000000"))
        tx.execute(text("UPDATE invocation SET scheduled_at = 0"))
    house.restart()
    house.run()
    assert [one["status"] for one in house.results()] == ["succeeded"]


def test_random_numbers_and_what_was_answered_stay_the_same_when_a_program_is_repeated(
    house: House, receiver: Receiver
) -> None:
    receiver.answer = lambda _request, number: web.Response(status=503 if number in (0, 2) else 200)
    house.create(
        """
        let id := generateUUIDv4() let at := toString(now())
        fetch(inputs.url, {'body': f'{id} {at}'}) fetch(inputs.url, {'body': f'{id} {at}'})
        """,
        values={"url": receiver.url},
    )
    house.run(stored())
    first, *others = [hit.body.split() for hit in receiver.hits]
    assert (len(others), len({at for _, at in others})) == (3, 1)
    assert first[1] != others[0][1], "the time is that of the attempt"
    assert {uuid for uuid, _ in others} == {first[0]}
    assert house.results()[0]["status"] == "succeeded"


# --- capturing


def test_a_program_may_capture_one_event(house: House, receiver: Receiver) -> None:
    receiver.answer = lambda _request, number: web.Response(status=503 if number == 0 else 200)
    function = house.create(
        "postHogCapture({'event': 'echo', 'properties': {'a': event.properties.a}}) print(fetch(inputs.url).status)",
        values={"url": receiver.url},
    )
    house.run(stored(properties={"a": [1], "$hog_function_execution_count": 3}, distinct_id="u9"))
    assert infos(house, function) == ["200"]
    projects = {project for project, _ in house.captured}
    captured = [event for _, event in house.captured]
    assert projects == {1}
    assert len({event["uuid"] for event in captured}) == 1
    assert captured[0]["event"] == "echo"
    assert captured[0]["distinct_id"] == "u9"
    assert captured[0]["properties"] == {"a": [1], "$hog_function_execution_count": 4}
    stamp = datetime.fromisoformat(captured[0]["timestamp"])
    assert abs(datetime.now(UTC) - stamp) < timedelta(minutes=1)


def capturing(house: House, failures: int, refusal: Exception) -> list[str]:
    """Let so many captures fail; the ids of those that are tried."""
    tried: list[str] = []

    async def capture(project_id: int, event: dict[str, Any]) -> None:
        tried.append(event["uuid"])
        if len(tried) <= failures:
            raise refusal
        house.captured.append((project_id, event))

    house.capture = capture
    return tried


@pytest.mark.parametrize(
    "error",
    [CaptureRefusedError("the disk is full", for_now=True), DatabaseBusyError("locked"), OSError(28, "full")],
)
def test_a_captured_event_waits_until_it_can_be_stored(house: House, error: Exception) -> None:
    house.options["worker"] = WorkerLimits(idle_s=0.05, capture_retry_s=0.01, max_capture_retry_s=0.02)
    house.restart()
    tried = capturing(house, 20, error)
    function = house.create("postHogCapture({'event': 'echo'})")
    house.dispatch(stored())
    house.delivery.start()
    wait_for(lambda: len(tried) > 10)
    assert house.queue.counts.backlog() == 1
    assert house.results() == [], "nothing is written of the turn before it"
    house.wait_idle()
    assert len(house.captured) == 1
    assert len(set(tried)) == 1
    assert house.metrics(function) == {"triggered": 1, "succeeded": 1}


def test_a_captured_event_survives_a_stop_while_it_cannot_be_stored(house: House) -> None:
    tried = capturing(house, 10**9, CaptureRefusedError("the disk is full", for_now=True))
    house.create("postHogCapture({'event': 'echo'})")
    house.dispatch(stored())
    house.delivery.start()
    wait_for(lambda: tried)
    assert house.delivery.stop(1.0)
    house.capture = None
    house.restart()
    house.run()
    assert [event["uuid"] for _, event in house.captured] == [tried[0]]


def test_a_captured_event_that_is_refused_is_told_to_the_log(house: House) -> None:
    tried = capturing(house, 1, CaptureRefusedError("it is larger than 1000000 bytes"))
    function = house.create("postHogCapture({'event': 'echo'})")
    house.run(stored())
    assert errors(house, function) == ["The captured event was not stored: it is larger than 1000000 bytes."]
    assert len(tried) == 1
    assert house.metrics(function) == {"triggered": 1, "succeeded": 1}


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("postHogCapture({})", "[HogFunction] - postHogCapture call missing 'event' property"),
        (
            "postHogCapture({'event': 'a'}) postHogCapture({'event': 'b'})",
            "postHogCapture was called more than once. Only one call is allowed per function",
        ),
    ],
)
def test_wrong_captures_end_the_run(house: House, code: str, error: str) -> None:
    house.create(code)
    house.run(stored())
    assert house.results()[0]["error_message"] == error


def test_endless_chains_of_captures_are_cut(house: House) -> None:
    function = house.create("postHogCapture({'event': 'echo'})")
    house.run(stored(properties={"$hog_function_execution_count": 9}))
    assert len(house.captured) == 1
    house.run(stored(properties={"$hog_function_execution_count": 10}))
    assert len(house.captured) == 1
    warnings = [text for level, text in house.logs(function) if level == "warn"]
    assert len(warnings) == 1
    assert "endless loop" in warnings[0]
    assert house.metrics(function)["succeeded"] == 2


# --- guard


def test_internal_addresses_can_be_opened_by_the_operator(house: House, receiver: Receiver) -> None:
    house.close()
    house.options = {"guard": AddressGuard()}
    house.open()
    function = house.create("print(fetch(inputs.url).body)", values={"url": receiver.url})
    house.run(stored())
    assert infos(house, function) == ["SecureRequestError: Hostname is not allowed"]
    assert receiver.hits == []
