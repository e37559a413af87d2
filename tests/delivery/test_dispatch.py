"""Which invocations events cause (spec: hog-runtime 0, 1, 3, 5, 7.1)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract.rules import rule
from tests.delivery.conftest import House, stored
from tests.waiting import wait_for

from hoglab.delivery.dispatch.masking import Masked, allowed, decide
from hoglab.delivery.replay.reruns import RerunFilter, rerun
from hoglab.delivery.runs.dead_letters import EVENTS
from hoglab.delivery.runs.state import INVOCATIONS, invocation_id
from hoglab.functions.status import DEGRADED_STATE
from hoglab.storage.database import DatabaseFullError
from hoglab.storage.event_store.ingested import IngestedEvent
from hoglab.storage.invocations import MaskingCount


def at_most(number: int) -> dict[str, Any]:
    """A filter on the property ``n``."""
    return {"key": "n", "type": "event", "operator": "lte", "value": number}


def queued(house: House) -> list[dict[str, Any]]:
    """The states in the queue with their ids and places, in order of insertion."""
    found = house.rows("invocation", "id, function_id, queue, priority, log_offset, state", "rowid")
    names = ("id", "function_id", "queue", "priority", "log_offset")
    return [{**dict(zip(names, row, strict=False)), **orjson.loads(row[5])} for row in found]


# --- globals


def test_globals_have_everything_that_programs_may_ask_for(house: House) -> None:
    function = house.create(name="Forward")
    with house.database.write() as tx:
        tx.connection.exec_driver_sql(
            "INSERT INTO group_type (project_id, group_type, group_type_index, created_at) "
            "VALUES (1, 'company', 0, 0), (1, 'team', 1, 0)"
        )
        tx.connection.exec_driver_sql(
            'INSERT INTO "group" (project_id, group_type_index, group_key, properties, created_at, version) '
            "VALUES (1, 0, 'a/b', '{\"size\":7}', 0, 0)"
        )
        tx.changed("group_types", 1)
    uuid = UUID("0190a3d4-0000-7000-8000-000000000001")
    house.dispatch(
        stored(
            "signup",
            {"plan": "pro"},
            person={"name": "Ann", "email": ""},
            distinct_id="u 1",
            uuid=uuid,
            groups={0: "a/b"},
            chain='a:href="/x"',
            log_offset=5,
        )
    )
    [state] = queued(house)
    project = "https://h.example/project/1"
    assert state["function_id"] == function["id"]
    assert (state["queue"], state["priority"], state["log_offset"]) == ("hog", 0, 5)
    assert state["globals"] == {
        "project": {"id": 1, "name": house.project.name, "url": project},
        "event": {
            "uuid": str(uuid),
            "event": "signup",
            "distinct_id": "u 1",
            "properties": {"plan": "pro"},
            "elements_chain": 'a:href="/x"',
            "timestamp": "2026-01-01T10:00:00.000Z",
            "captured_at": "2026-01-01T10:00:00.000Z",
            "url": f"{project}/events/{uuid}/2026-01-01T10%3A00%3A00.000Z",
        },
        "groups": {
            "company": {
                "id": "a/b",
                "type": "company",
                "index": 0,
                "url": f"{project}/groups/0/a%2Fb",
                "properties": {"size": 7},
            }
        },
        "person": {
            "id": str(UUID(int=77)),
            "name": "Ann",
            "url": f"{project}/person/u%201",
            "properties": {"name": "Ann", "email": ""},
        },
    }


def test_programs_see_their_source_inputs_and_a_stand_in_for_a_missing_person(house: House) -> None:
    function = house.create(
        "print(source.name, source.url, person.name, person.properties.email, inputs.a)",
        name="Forward",
        values={"a": "{event.event}!"},
    )
    house.run(stored("signup"))
    url = f"https://h.example/project/1/functions/{function['id']}/configuration/"
    assert house.logs(function)[0] == ("info", f"Forward, {url}, , null, signup!")


def test_a_source_without_a_name_has_that_of_its_function(house: House) -> None:
    function = house.create("print(source.name)", name=None)
    house.run(stored("signup"))
    assert house.logs(function)[0] == ("info", f"Hog function: {function['id']}")


def test_a_person_that_came_later_is_looked_up_when_the_program_runs(house: House) -> None:
    function = house.create("print(person.name)")
    house.dispatch(stored("signup", distinct_id="late"))
    with house.database.write() as tx:
        tx.connection.exec_driver_sql(
            "INSERT INTO person (id, project_id, uuid, properties, is_identified, created_at, version) "
            "VALUES (1, 1, '0190a3d4-0000-7000-8000-000000000002', '{\"email\":\"l@x.io\"}', 1, 0, 0)"
        )
        tx.connection.exec_driver_sql(
            "INSERT INTO person_distinct_id (project_id, distinct_id, person_id) VALUES (1, 'late', 1)"
        )
    house.run()
    assert house.logs(function)[0] == ("info", "l@x.io")


# --- filters and mappings


@rule("H1.2")
def test_filters_decide_and_are_counted(house: House) -> None:
    person_filter = {"key": "plan", "type": "person", "operator": "exact", "value": "pro"}
    group_filter = {
        "key": "$group_0", "type": "event_metadata", "operator": "exact", "value": "acme",
    }  # fmt: skip
    by_person = house.create(filters={"properties": [person_filter]})
    by_group = house.create(filters={"properties": [group_filter]})
    by_element = house.create(
        filters={"properties": [{"key": "text", "type": "element", "operator": "exact", "value": "Buy"}]}
    )
    house.dispatch(
        stored(person={"plan": "pro"}),
        stored(person={"plan": "free"}),
        stored(groups={0: "acme"}),
        stored(chain='button:text="Buy"'),
    )
    matched = [state["function_id"] for state in queued(house)]
    assert sorted(matched) == sorted([by_person["id"], by_group["id"], by_element["id"]])
    for function in (by_person, by_group, by_element):
        assert house.metrics(function) == {"triggered": 1, "filtered": 3}


def test_counts_of_what_was_filtered_are_written_once_a_second_and_when_idle(house: House) -> None:
    function = house.create(filters={"events": [{"id": "other", "type": "events"}]})
    dispatcher = house.delivery.dispatcher
    for _ in range(3):
        house.dispatch(stored("signup"), stored("other"))
    assert house.metrics(function) == {"triggered": 3, "filtered": 1}
    dispatcher.flush()
    assert house.metrics(function) == {"triggered": 3, "filtered": 3}
    dispatcher.flush()
    house.change(function, enabled=False)
    house.dispatch(stored("signup"))
    dispatcher.flush()
    assert house.metrics(function) == {"triggered": 3, "filtered": 3}


def test_a_batch_that_could_not_be_written_is_counted_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = house.create(filters={"events": [{"id": "other", "type": "events"}]})
    house.dispatch(stored("signup"))

    def full(*_: Any, **__: Any) -> int:
        raise DatabaseFullError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(house.queue, "enqueue", full)
        with pytest.raises(DatabaseFullError):
            house.dispatch(stored("signup"))
    house.dispatch(stored("signup"))
    house.delivery.dispatcher.flush()
    assert house.metrics(function) == {"filtered": 2}


@rule("H1.3")
def test_a_filter_that_fails_is_logged_and_stops_nobody_else(house: House) -> None:
    bad = {"properties": [{"type": "hogql", "key": "match(properties.a, properties.b)"}]}
    failing = house.create(filters=bad)
    good = house.create()
    event = stored(properties={"a": "x", "b": "(", "$lib": "web"})
    house.dispatch(event)
    assert [state["function_id"] for state in queued(house)] == [good["id"]]
    assert house.metrics(failing) == {"filtering_failed": 1}
    [(level, text)] = house.logs(failing)
    assert level == "error"
    assert text.startswith(f"Error filtering event {event.row.uuid}: ")


@rule("F8.5")
@rule("H1.4")
def test_each_matching_mapping_is_a_run_with_its_own_inputs(house: House) -> None:
    def mapping(name: str, event: str | None, **inputs: str) -> dict[str, Any]:
        schema = [{"key": key, "type": "string"} for key in inputs]
        filters = {} if event is None else {"events": [{"id": event, "type": "events"}]}
        return {
            "name": name,
            "inputs_schema": schema,
            "inputs": {key: {"value": value} for key, value in inputs.items()},
            "filters": filters,
        }

    function = house.create(
        "print(inputs.a, inputs.b)",
        values={"a": "own", "b": "{inputs.a}+"},
        mappings=[
            mapping("one", "signup", a="first {event.event}"),
            mapping("two", "other"),
            mapping("three", None, b="third"),
        ],
    )
    house.run(stored("signup"))
    assert sorted(text for level, text in house.logs(function) if level == "info") == [
        "first signup, first signup+",
        "own, third",
    ]
    assert house.metrics(function) == {"triggered": 2, "filtered": 1, "succeeded": 2}
    assert len({result["invocation_id"] for result in house.results()}) == 2


def test_what_only_the_filter_of_a_mapping_reads_is_there_for_it(house: House) -> None:
    text = {"properties": [{"key": "text", "type": "element", "operator": "exact", "value": "Buy"}]}
    plan = {"properties": [{"key": "plan", "type": "person", "operator": "exact", "value": "pro"}]}
    house.create(
        mappings=[
            {"name": "element", "inputs_schema": [], "inputs": {}, "filters": text},
            {"name": "person", "inputs_schema": [], "inputs": {}, "filters": plan},
        ],
    )
    house.dispatch(stored(chain='button:text="Buy"'), stored(person={"plan": "pro"}), stored())
    assert len({state["mapping_id"] for state in queued(house)}) == 2


def test_secrets_of_mappings_are_hidden(house: House) -> None:
    function = house.create(
        "print(inputs.hook)",
        mappings=[
            {
                "name": "one",
                "inputs_schema": [{"key": "hook", "type": "string", "secret": True}],
                "inputs": {"hook": {"value": "hidden-place"}},
                "filters": {},
            }
        ],
    )
    house.run(stored())
    assert house.logs(function)[0] == ("info", "***REDACTED***")


@rule("H1.1")
def test_a_function_whose_mappings_are_empty_never_runs(house: House) -> None:
    function = house.create()
    function = house.change(function, mappings=[])
    house.dispatch(stored())
    assert queued(house) == []
    assert house.metrics(function) == {}


def test_disabled_functions_are_not_asked(house: House) -> None:
    function = house.create(enabled=False)
    house.dispatch(stored())
    assert queued(house) == []
    house.change(function, enabled=True)
    house.dispatch(stored())
    assert len(queued(house)) == 1


# --- inputs


def test_inputs_that_cannot_be_built_are_counted_and_kept_for_a_rerun(house: House) -> None:
    function = house.create(values={"a": "{jsonParse(event.properties.bad)}"})
    event = stored(properties={"bad": "{"})
    house.dispatch(event)
    assert queued(house) == []
    assert house.metrics(function) == {"inputs_failed": 1}
    [(level, text)] = house.logs(function)
    assert (level, text.startswith(f"Error building inputs for event {event.row.uuid}: ")) == ("error", True)
    [result] = house.results()
    assert (result["status"], result["error_kind"]) == ("failed", "inputs_failed")
    assert result["event_uuid"] == str(event.row.uuid)


# --- position


def test_the_position_is_kept_with_the_invocations(house: House) -> None:
    assert house.delivery.dispatcher.position() == 0
    house.dispatch()
    assert house.delivery.dispatcher.position() == 1
    house.create()
    house.dispatch(stored())
    house.restart()
    assert house.delivery.dispatcher.position() == 2
    assert len(queued(house)) == 1


@given(st.uuids(), st.uuids(), st.none() | st.uuids().map(str) | st.integers(0, 99).map(str))
def test_ids_of_runs_are_uuids_of_their_causes(function: UUID, event: UUID, mapping: str | None) -> None:
    name = f"{function}/{event}/{'' if mapping is None else mapping}"
    assert invocation_id(str(function), str(event), mapping) == str(uuid5(INVOCATIONS, name))


@rule("H4.8")
def test_there_is_no_room_when_the_worker_cannot_keep_up(house: House) -> None:
    house.create("sleep(600)")
    backpressure = house.delivery.backpressure
    backpressure.max_backlog = 2
    assert backpressure.for_any()
    house.dispatch(stored(), stored())
    assert backpressure.for_any(), "they are due for a moment only"
    backpressure.now = lambda: datetime.now(UTC) + timedelta(seconds=10)
    assert not backpressure.for_any()
    house.delivery.start()
    wait_for(backpressure.for_any)
    assert house.queue.counts.backlog() == 2, "they sleep"


@rule("H4.8")
def test_functions_that_hold_themselves_back_hold_up_nobody(house: House) -> None:
    limited = house.create(
        filters={"events": [{"id": "a", "type": "events"}]}, x_delivery={"rate_limit": {"per_s": 0.001}}
    )
    slow = house.create(filters={"events": [{"id": "b", "type": "events"}]})
    house.create(filters={"events": [{"id": "c", "type": "events"}]})
    backpressure = house.delivery.backpressure
    backpressure.max_backlog = 3
    backpressure.now = lambda: datetime.now(UTC) + timedelta(seconds=10)
    house.dispatch(*(stored("a") for _ in range(5)))
    assert backpressure.for_any(), "they wait for their own rate"
    assert backpressure.load(9) == 0
    house.dispatch(*(stored("b") for _ in range(3)))
    assert not backpressure.for_any(), "the worker is late"
    house.delivery.function_breakers.force(slow["id"], DEGRADED_STATE)
    assert backpressure.for_any(), "the function is slow"
    house.dispatch(*(stored("c") for _ in range(2)))
    assert backpressure.for_any()
    house.dispatch(stored("c"))
    assert not backpressure.for_any()
    house.change(limited, x_delivery=None)
    assert backpressure.load(99) == 8
    assert backpressure.load(7) == 7


@rule("H4.8")
def test_runs_that_wait_for_one_of_their_key_hold_up_nobody(house: House) -> None:
    house.create("sleep(600)", x_delivery={"order_key": "{event.distinct_id}"})
    backpressure = house.delivery.backpressure
    backpressure.max_backlog = 3
    house.dispatch(*(stored() for _ in range(5)))
    house.delivery.start()
    soon = datetime.now(UTC) + timedelta(seconds=60)
    wait_for(lambda: (due := house.queue.counts.next_due()) is not None and due > soon)
    backpressure.now = lambda: datetime.now(UTC) + timedelta(seconds=10)
    assert house.queue.counts.backlog() == 5
    assert backpressure.for_any(), "the first sleeps, and nobody could begin the others"
    assert backpressure.load(9) == 0
    house.delivery.stop(10)
    house.create(filters={"events": [{"id": "late", "type": "events"}]})
    house.dispatch(stored("late"), stored("late"))
    assert backpressure.load(9) == 2
    assert backpressure.for_any(), "the worker is late, but not with much"
    house.dispatch(stored("late"))
    assert not backpressure.for_any()


def test_a_function_with_too_much_waiting_fails_further_runs_and_nobody_elses(house: House) -> None:
    full = house.create(
        name="Full",
        masking={**TTL, "threshold": None},
        filters={"properties": [at_most(9)]},
        values={"a": "1"},
    )
    other = house.create(filters={"events": [{"id": "a", "type": "events"}]})
    backpressure = house.delivery.backpressure
    backpressure.max_waiting = 2
    events = [stored("a", {"n": n}, distinct_id=f"u{n}") for n in range(2)]
    house.dispatch(*events)
    house.dispatch(*events)
    assert house.metrics(full) == {"triggered": 2, "masked": 2}
    assert house.metrics(other) == {"triggered": 2}, "they wait already"
    backpressure.max_waiting = 3
    more = [stored("b", {"n": n}, distinct_id=f"u{n}") for n in range(2, 5)]
    house.dispatch(*more)
    assert backpressure.for_any()
    assert not backpressure.for_one(full["id"])
    assert backpressure.for_one(other["id"])
    counts = house.metrics(full)
    assert (counts["triggered"], counts["queue_full"]) == (3, 2)
    [(level, text)] = house.logs(full)
    assert (level, text) == ("error", "2 runs failed, for 3 wait already. They can be run again.")
    kept = {result["event_uuid"]: result for result in house.results()}
    assert set(kept) == {str(event.row.uuid) for event in more[1:]}
    assert {(one["status"], one["error_kind"]) for one in kept.values()} == {("failed", "queue_full")}

    house.delivery.start()
    house.wait_idle()
    again = rerun(house.delivery, house.project, full["id"], RerunFilter(error_kinds=("queue_full",)), {})
    assert (again.queued, again.skipped) == (2, 0)
    house.wait_idle()
    assert {result["status"] for result in house.results()} == {"succeeded"}
    assert house.metrics(full)["succeeded"] == 5


# --- masking


TTL = {"ttl": 60, "hash": "{event.distinct_id}", "threshold": None}
THREE = {**TTL, "threshold": 3}


def hits(count: int, **facts: Any) -> list[IngestedEvent]:
    return [stored(**facts) for _ in range(count)]


@rule("F7.3")
@rule("H2.1")
def test_without_a_threshold_only_the_first_of_a_window_runs(house: House) -> None:
    function = house.create(masking=TTL)
    house.dispatch(*hits(2, distinct_id="a"), *hits(1, distinct_id="b"))
    house.dispatch(*hits(3, distinct_id="a"))
    assert [state["distinct_id"] for state in queued(house)] == ["a", "b"]
    assert house.metrics(function) == {"triggered": 2, "masked": 4}


@rule("F7.3")
@rule("H2.2")
def test_with_a_threshold_one_more_runs_after_so_many(house: House) -> None:
    function = house.create(masking=THREE)
    ran = []
    for number in range(7):
        before = len(queued(house))
        house.dispatch(stored(properties={"n": number}))
        if len(queued(house)) > before:
            ran.append(number + 1)
    assert ran == [1, 4, 7]
    assert house.metrics(function) == {"triggered": 3, "masked": 4}


def test_events_and_a_replay_that_count_at_once_run_one_of_a_window(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = house.create(masking=TTL)
    replay = house.delivery.dispatcher_for(1, EVENTS, function["id"])
    assert replay is not None
    masking_counts, others = house.queue.masking_counts, hits(1)

    def overtaken(keys: Any) -> Any:
        found = masking_counts(keys)
        if others:
            replay.dispatch([others.pop()], log_offset=None)
        return found

    monkeypatch.setattr(house.queue, "masking_counts", overtaken)
    house.dispatch(*hits(2))
    assert others == []
    assert len(queued(house)) == 1
    assert house.metrics(function) == {"triggered": 1, "masked": 2}


@rule("H2.3")
def test_a_batch_runs_its_first_ones(house: House) -> None:
    house.create(masking=THREE)
    events = hits(7)
    house.dispatch(*events)
    assert [state["event_uuid"] for state in queued(house)] == [str(one.row.uuid) for one in events[:3]]


def test_counts_survive_a_restart(house: House) -> None:
    house.create(masking=TTL)
    house.dispatch(*hits(1))
    house.restart()
    house.dispatch(*hits(1))
    assert len(queued(house)) == 1


def test_an_expression_that_gives_nothing_or_fails_masks_nothing(house: House) -> None:
    house.create(masking={**TTL, "hash": "{event.properties.missing}"})
    house.create(masking={**TTL, "hash": "{jsonParse(event.properties.bad)}"})
    house.dispatch(*hits(3, properties={"bad": "{"}))
    assert len(queued(house)) == 6


def test_a_batch_that_is_repeated_after_a_crash_counts_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.create(masking=TTL)
    event = stored()
    write = house.queue._traces.write

    def crash(*_args: Any) -> None:
        raise OSError("the process dies here")

    monkeypatch.setattr(house.queue._traces, "write", crash)
    with pytest.raises(OSError, match="dies"):
        house.dispatch(event)
    monkeypatch.setattr(house.queue._traces, "write", write)
    house.dispatch(event)
    assert len(queued(house)) == 1


NOW = datetime(2026, 1, 1, tzinfo=UTC)


@rule("H2.4")
def test_a_window_does_not_move() -> None:
    one = Masked(("f", "h"), 60, None)
    _, [first] = decide([one], {}, NOW)
    assert first.expires_at == NOW + timedelta(seconds=60)
    passed, [second] = decide([one, one], {one.key: first}, NOW + timedelta(seconds=59))
    assert (passed, second.count, second.expires_at) == ([False, False], 3, first.expires_at)


def sequential(threshold: int | None) -> Iterator[bool]:
    """What becomes of hit after hit of one window."""
    count = 0
    while True:
        yield allowed(count, count + 1, threshold) > 0
        count += 1


@given(
    st.lists(st.lists(st.sampled_from(["a", "b", None]), max_size=9), max_size=6),
    st.one_of(st.none(), st.integers(0, 5)),
)
def test_batches_let_as_many_through_as_single_hits(
    batches: list[list[str | None]], threshold: int | None
) -> None:
    singles = {"a": sequential(threshold), "b": sequential(threshold)}
    known: dict[tuple[str, str], MaskingCount] = {}
    for batch in batches:
        candidates = [None if key is None else Masked(("f", key), 60, threshold) for key in batch]
        passed, counts = decide(candidates, known, NOW)
        known |= {(one.function_id, one.hash): one for one in counts}
        expected = {key: sum(next(singles[key]) for one in batch if one == key) for key in singles}
        for key, number in expected.items():
            through = [passes for one, passes in zip(batch, passed, strict=True) if one == key]
            assert sum(through) == number
            assert through == sorted(through, reverse=True)  # the first ones of the batch
        assert all(passes for one, passes in zip(batch, passed, strict=True) if one is None)
