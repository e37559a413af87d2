"""Events of the server itself, and the functions that hear of them (spec: hog-runtime 7.4)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.rules import rule
from tests.delivery.conftest import House, Receiver, stored
from tests.waiting import wait_for

from hoglab.accounts import internal_events
from hoglab.background import RETRY_S
from hoglab.delivery.dispatch.internal_events import JOB, InternalEventDispatcher
from hoglab.functions.configuration.builder import FunctionPatch
from hoglab.functions.state_changes import StateChanges
from hoglab.storage.job_leases import JobLeases

TELL = "fetch(inputs.url, {'body': {'event': event, 'person': person, 'project': project.id}})"


def listener(house: House, receiver: Receiver, *names: str, **filters: Any) -> dict[str, Any]:
    """An internal destination that sends what it hears of."""
    events = [{"id": name, "type": "events"} for name in names]
    return house.create(
        TELL,
        type="internal_destination",
        values={"url": receiver.url},
        filters={"events": events, **filters},
    )


@pytest.fixture
def service(house: House) -> InternalEventDispatcher:
    return house.delivery.internal_events(house.database, JobLeases(house.database))


def dispatch_all(house: House, service: InternalEventDispatcher) -> None:
    while service.dispatch_waiting():
        pass
    house.run()


def waiting(house: House) -> list[str]:
    with house.database.read() as connection:
        return [event.event for event in internal_events.waiting(connection, 1000)]


@rule("H10.1")
def test_what_people_do_reaches_internal_destinations(
    house: House, receiver: Receiver, service: InternalEventDispatcher
) -> None:
    with house.database.read() as connection:
        user_id, uuid, email, distinct_id = connection.exec_driver_sql(
            'SELECT id, uuid, email, distinct_id FROM "user"'
        ).one()
    function = listener(house, receiver, "$activity_log_entry_created")
    dispatch_all(house, service)
    receiver.hits.clear()
    watched = house.create(name="Watched")
    dispatch_all(house, service)
    house.functions.update(house.project, user_id, watched["id"], FunctionPatch({"name": "Renamed"}))
    dispatch_all(house, service)
    created, renamed = [hit.json for hit in receiver.hits]

    event = created["event"]
    assert (event["event"], event["url"], event["captured_at"]) == ("$activity_log_entry_created", "", None)
    assert event["elements_chain"] == ""
    assert event["distinct_id"] == "project_1"
    assert (event["properties"]["scope"], event["properties"]["activity"]) == ("HogFunction", "created")
    assert event["properties"]["item_id"] == watched["id"]
    assert event["properties"]["user"] is None
    assert created["person"]["properties"] == {}

    event, person = renamed["event"], renamed["person"]
    assert (event["distinct_id"], event["properties"]["user"]["email"]) == (distinct_id, email)
    assert event["properties"]["detail"]["changes"] == [
        {"type": "HogFunction", "action": "changed", "field": "name", "before": "Watched", "after": "Renamed"}
    ]
    assert (person["id"], person["properties"]["email"], person["name"]) == (uuid, email, email)
    assert renamed["project"] == 1
    assert waiting(house) == []
    assert house.metrics(function)["succeeded"] == 3


@rule("H10.2")
def test_filters_look_into_the_details(
    house: House, receiver: Receiver, service: InternalEventDispatcher
) -> None:
    listener(
        house,
        receiver,
        "$activity_log_entry_created",
        properties=[
            {"key": "detail.name", "type": "event", "operator": "exact", "value": "Billing"},
            {"key": "scope", "type": "event", "operator": "exact", "value": "HogFunction"},
        ],
    )
    house.create(name="Shop")
    house.create(name="Billing")
    dispatch_all(house, service)
    assert [hit.json["event"]["properties"]["detail"]["name"] for hit in receiver.hits] == ["Billing"]


@rule("H10.3")
def test_internal_and_captured_events_do_not_mix(
    house: House, receiver: Receiver, service: InternalEventDispatcher
) -> None:
    name = "$activity_log_entry_created"
    inside = listener(house, receiver, name, source="events")  # as Terraform configurations send it
    outside = house.create(
        TELL, values={"url": receiver.url}, filters={"events": [{"id": name, "type": "events"}]}
    )
    everything = house.create(TELL, values={"url": receiver.url})
    house.run(stored(name, {"scope": "forged"}))
    assert sorted(hit.json["event"]["properties"]["scope"] for hit in receiver.hits) == ["forged", "forged"]
    assert house.metrics(inside) == {}
    receiver.hits.clear()
    dispatch_all(house, service)
    assert {hit.json["event"]["properties"]["scope"] for hit in receiver.hits} == {"HogFunction"}
    assert house.metrics(outside)["triggered"] == house.metrics(everything)["triggered"] == 1
    assert house.metrics(inside)["triggered"] == 3


@rule("H10.1")
def test_other_projects_hear_nothing(
    house: House, receiver: Receiver, service: InternalEventDispatcher
) -> None:
    listener(house, receiver)
    dispatch_all(house, service)
    receiver.hits.clear()
    other = house.accounts.create_project(house.project.organization_id, "Other")
    with house.database.write() as tx:
        internal_events.emit(tx, other.id, "$something", {}, user_id=None)
    dispatch_all(house, service)
    assert [hit.json for hit in receiver.hits if hit.json["event"]["event"] == "$something"] == []
    assert waiting(house) == []


@rule("H10.4")
def test_a_crash_before_an_event_is_removed_starts_nothing_twice(
    house: House, receiver: Receiver, service: InternalEventDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener(house, receiver)

    def crash(_tx: Any, _events: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(internal_events, "forget", crash)
        with pytest.raises(KeyboardInterrupt):
            service.dispatch_waiting()
    assert len(waiting(house)) == 1
    dispatch_all(house, service)
    assert len(receiver.hits) == 1


@rule("H10.4")
def test_a_change_that_fails_is_not_told(house: House) -> None:
    def fail() -> None:
        with house.database.write() as tx:
            internal_events.emit(tx, 1, "$something", {}, user_id=None)
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert waiting(house) == []


@rule("H10.4")
def test_the_service_takes_up_what_waited_and_what_comes(
    house: House, receiver: Receiver, service: InternalEventDispatcher
) -> None:
    listener(house, receiver)
    house.delivery.start()
    service.start()
    try:
        wait_for(lambda: len(receiver.hits) == 1)
        house.create(name="Next")
        wait_for(lambda: len(receiver.hits) == 2)
        wait_for(lambda: waiting(house) == [])
    finally:
        service.stop(10)
    house.wait_idle()


def test_the_service_waits_for_room_in_the_queue(
    house: House, receiver: Receiver, service: InternalEventDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener(house, receiver)
    asked: list[int] = []

    def full() -> int:
        asked.append(1)
        return 10**9

    with monkeypatch.context() as patch:
        patch.setattr(house.queue.counts, "backlog", full)
        service.start()
        wait_for(lambda: asked)
        assert len(waiting(house)) == 1
    try:
        wait_for(lambda: waiting(house) == [])
    finally:
        service.stop(10)


@rule("H10.1")
def test_states_of_functions_are_told(house: House, receiver: Receiver) -> None:
    house.close()
    house.on_state_change = lambda *change: StateChanges(house.database)(*change)
    house.open()
    service = house.delivery.internal_events(house.database, JobLeases(house.database))
    listener(house, receiver, "$hog_function_state_change")
    slow = house.create(name="Slow")
    dispatch_all(house, service)
    house.delivery.function_breakers.observe({slow["id"]: 3_000})
    house.delivery.function_breakers.force(slow["id"], 3)
    house.delivery.function_breakers.force(slow["id"], 3)
    house.change(slow, name="Mended")
    dispatch_all(house, service)
    told = {
        (one["previous_state"], one["state"]): one
        for one in (hit.json["event"]["properties"] for hit in receiver.hits)
    }
    assert set(told) == {("healthy", "degraded"), ("degraded", "disabled"), ("disabled", "degraded")}
    assert len(receiver.hits) == 3
    assert told["healthy", "degraded"] == {
        "hog_function_id": slow["id"],
        "hog_function_type": "destination",
        "hog_function_name": "Slow",
        "hog_function_template_id": None,
        "state": "degraded",
        "previous_state": "healthy",
    }
    with house.database.read() as connection:
        entries = connection.exec_driver_sql(
            "SELECT is_system, detail FROM activity_log WHERE activity = 'state_changed' ORDER BY id"
        ).all()
    assert [row[0] for row in entries] == [1, 1, 1]
    assert '"before":"healthy","after":"degraded"' in entries[0][1]


def test_what_another_process_tells_is_left_to_it(
    house: House, receiver: Receiver, service: InternalEventDispatcher
) -> None:
    listener(house, receiver)
    with JobLeases(house.database).claimed(JOB):
        assert service.round() == RETRY_S
        assert len(waiting(house)) == 1
    assert service.round() is None
    assert waiting(house) == []
