"""What is computed once counts every event that was acknowledged before it was asked for, however far ingestion is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.contract.conftest import Api, Laboratory

from hoglab.ingestion.steps import BatchSteps, Cursor
from hoglab.storage import catching_up

PEOPLE = 8
START = "2026-01-01T00:00:00Z"
HELD_S = 0.7
PURCHASES = {
    "kind": "ExperimentMetric",
    "metric_type": "funnel",
    "series": [{"kind": "EventsNode", "event": "purchase"}],
}


class Gate:
    """Lets ingestion store events, or not yet."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nothing is stored inside; what waits for it goes on a moment after it began."""
        self.open.clear()
        timer = threading.Timer(HELD_S, self.open.set)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self.open.set()


@pytest.fixture(scope="module")
def gate() -> Gate:
    return Gate()


@pytest.fixture(scope="module")
def slow(gate: Gate, open_laboratory: Callable[..., Laboratory]) -> Iterator[Laboratory]:
    """An application whose ingestion waits at the gate before it does anything with a batch."""
    original = BatchSteps._process

    def waiting(self: BatchSteps, cursor: Cursor, batch: Any) -> None:
        gate.open.wait()
        original(self, cursor, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchSteps, "_process", waiting)
        yield open_laboratory()
        gate.open.set()


@pytest.fixture
def api(slow: Laboratory) -> Api:
    return slow.api()


def send(api: Api, event: str = "purchase", **properties: Any) -> None:
    """ReadToken, and no more."""
    batch = [
        {"event": event, "distinct_id": f"user-{number}", "properties": properties}
        for number in range(PEOPLE)
    ]
    api.ok("POST", "/batch/", {"api_key": api.token(), "batch": batch})


def expose(api: Api) -> dict[str, Any]:
    made = api.experiment(start_date=START, metrics=[PURCHASES])
    send(api, "$feature_flag_called", **{"$feature_flag": "button", "$feature_flag_response": "test"})
    return made


def calculated(api: Api, cohort: int) -> dict[str, Any]:
    """The cohort when its members have been found, and how it was until then."""

    def done() -> Any:
        found = api.ok("GET", f"/cohorts/{cohort}/")
        assert found["is_calculating"] or found["count"] == PEOPLE, found
        return None if found["is_calculating"] else found

    found: dict[str, Any] = api.until(done)
    return found


def test_the_cohort_of_an_experiment(api: Api, gate: Gate) -> None:
    with gate.held():
        made = expose(api)
        path = f"/experiments/{made['id']}/create_exposure_cohort_for_experiment/"
        cohort = api.ok("POST", path, {})["cohort"]
        found = calculated(api, cohort["id"])
        assert gate.open.is_set()
    assert (found["count"], found["errors_calculating"]) == (PEOPLE, 0)


@pytest.mark.parametrize(
    "rule",
    [
        {"type": "person", "key": "plan", "value": ["pro"], "operator": "exact"},
        {"type": "behavioral", "value": "performed_event", "key": "purchase", "event_type": "events"},
    ],
    ids=["properties", "behaviour"],
)
def test_a_cohort_by_rules(api: Api, gate: Gate, rule: dict[str, Any]) -> None:
    filters = {"properties": {"type": "AND", "values": [rule]}}
    with gate.held():
        send(api, **{"$set": {"plan": "pro"}})
        cohort = api.ok("POST", "/cohorts/", {"name": "Some", "filters": filters}, status=201)
        assert calculated(api, cohort["id"])["count"] == PEOPLE


def test_a_cohort_by_rules_that_changed(api: Api, gate: Gate) -> None:
    rule = {"type": "person", "key": "plan", "value": ["none"], "operator": "exact"}
    filters = {"properties": {"type": "AND", "values": [rule]}}
    cohort = api.ok("POST", "/cohorts/", {"name": "Some", "filters": filters}, status=201)
    api.until(lambda: api.ok("GET", f"/cohorts/{cohort['id']}/")["count"] == 0)
    filters = {"properties": {"type": "AND", "values": [rule | {"value": ["pro"]}]}}
    with gate.held():
        send(api, **{"$set": {"plan": "pro"}})
        api.ok("PATCH", f"/cohorts/{cohort['id']}/", {"filters": filters})
        assert calculated(api, cohort["id"])["count"] == PEOPLE


def test_a_static_cohort(api: Api, gate: Gate) -> None:
    ids = [f"user-{number}" for number in range(PEOPLE)]
    body = {"name": "Some", "is_static": True, "_create_static_distinct_ids": ids[:4]}
    with gate.held():
        send(api)
        cohort = api.ok("POST", "/cohorts/", body, status=201)
        assert cohort["count"] == 4
    with gate.held():
        late = {"event": "purchase", "distinct_id": "late"}
        api.ok("POST", "/batch/", {"api_key": api.token(), "batch": [late]})
        path = f"/cohorts/{cohort['id']}/add_persons_to_static_cohort/"
        assert api.ok("PATCH", path, {"distinct_ids": [*ids, "late"]})["count"] == PEOPLE + 1


def test_freezing_an_experiment(api: Api, gate: Gate) -> None:
    with gate.held():
        made = expose(api)
        frozen = api.ok("POST", f"/experiments/{made['id']}/freeze_exposure/")
    group = frozen["feature_flag"]["filters"]["groups"][0]
    assert api.ok("GET", f"/cohorts/{group['exposure_frozen_cohort']}/")["count"] == PEOPLE


def test_a_recalculation(api: Api, gate: Gate) -> None:
    with gate.held():
        made = expose(api)
        job = api.ok("POST", f"/experiments/{made['id']}/metrics_recalculation/", {}, status=201)
        path = f"/experiments/{made['id']}/metrics_recalculation/{job['id']}/"

        def done() -> Any:
            found = api.ok("GET", path)
            return found if found["status"] == "completed" else None

        result = api.until(done)["results"][0]["result"]
    assert result["variant_results"][0]["number_of_samples"] == PEOPLE


def test_a_backfill(api: Api, gate: Gate) -> None:
    function = api.ok(
        "POST", "/hog_functions/", {"name": "f", "hog": "return 1", "enabled": True}, status=201
    )
    with gate.held():
        send(api)
        body = {"from": START, "to": "2100-01-01T00:00:00Z", "dry_run": True}
        job = api.call("POST", f"/hog_functions/{function['id']}/backfill/", body).json()
    assert job["total"] == PEOPLE, job


def test_a_sample_for_a_function(api: Api, gate: Gate) -> None:
    with gate.held():
        send(api, "signed up")
        configuration = {"hog": "return 1", "filters": {"events": [{"id": "signed up", "type": "events"}]}}
        found = api.ok("POST", "/hog_functions/new/sample_globals/", {"configuration": configuration})
    assert (found["stored"], found["matches"]) == (True, True)


def test_a_request_does_not_wait_for_ever(api: Api, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catching_up, "REQUEST_PATIENCE_S", 0.05)
    body = {"name": "Some", "is_static": True, "_create_static_distinct_ids": ["user-1"]}
    with gate.held():
        send(api)
        answer = api.call("POST", "/cohorts/", body)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    api.until(lambda: api.ok("GET", "/persons/?distinct_id=user-1")["count"])
    assert api.ok("POST", "/cohorts/", body, status=201)["count"] == 1


def test_other_cohorts_are_not_held_up(api: Api, gate: Gate) -> None:
    """Those that were asked for before the events that are not stored yet."""
    send(api, **{"$set": {"plan": "pro"}})
    api.until(lambda: api.ok("GET", "/persons/")["count"] == PEOPLE)
    rule = {"type": "person", "key": "plan", "value": ["pro"], "operator": "exact"}
    body = {"name": "Some", "filters": {"properties": {"type": "AND", "values": [rule]}}}
    cohort = api.ok("POST", "/cohorts/", body, status=201)
    assert calculated(api, cohort["id"])["count"] == PEOPLE
    gate.open.clear()
    try:
        send(api)
        held = api.ok("POST", "/cohorts/", body, status=201)
        time.sleep(0.5)
        assert api.ok("GET", f"/cohorts/{held['id']}/")["is_calculating"]
    finally:
        gate.open.set()
    assert calculated(api, held["id"])["count"] == PEOPLE
