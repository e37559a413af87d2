"""What to try a function on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.contract.rules import rule
from tests.delivery.conftest import House, stored
from tests.delivery.test_backfills import History, history
from tests.delivery.test_routes import Api

from hoglab.accounts.bootstrap import FirstStart
from hoglab.delivery.api.sample_routes import sample_router
from hoglab.delivery.trials import samples
from hoglab.storage.event_store import EventStoreUnavailableError

__all__ = ["history"]  # a fixture

PURCHASES = {
    "events": [
        {
            "id": "purchase",
            "type": "events",
            "properties": [{"key": "total", "type": "event", "operator": "gt", "value": 100}],
        }
    ]
}


@pytest.fixture
def api(house: House, history: History, prepared: tuple[Any, FirstStart]) -> Iterator[Api]:
    key = prepared[1].api_key
    assert key is not None
    api = Api(house, key, sample_router(house.delivery, house.functions, house.database, history.store))
    yield api
    api.close()


def sample(api: Api, function_id: str = "new", **configuration: Any) -> Any:
    body = {"configuration": configuration} if configuration else {}
    answer = api.call("POST", f"/{function_id}/sample_globals/", body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@rule("X6.1")
def test_the_newest_event_that_passes_is_found(house: House, history: History, api: Api) -> None:
    history.keep(
        stored("purchase", {"total": 500}),
        stored("purchase", {"total": 200}, person={"name": "Ada"}, distinct_id="ada"),
        stored("purchase", {"total": 7}),
        stored("seen"),
        stored("purchase", {"total": 900}, project_id=2),
    )
    function = house.create("print(event.properties.total, person.properties.name)", filters=PURCHASES)
    found = sample(api, function["id"])
    assert (found["stored"], found["matches"]) == (True, True)
    assert found["globals"]["event"]["properties"] == {"total": 200}
    assert found["globals"]["person"]["properties"] == {"name": "Ada"}

    run = api.try_out({"configuration": {}, "globals": found["globals"]}, function["id"])
    assert (run["status"], run["logs"][0]["message"]) == ("success", "200, Ada")
    changed = {"events": [{"id": "seen", "type": "events"}]}
    assert sample(api, function["id"], filters=changed)["globals"]["event"]["event"] == "seen"
    mapped = [{"filters": changed}]
    assert sample(api, hog="return 1", mappings=mapped)["globals"]["event"]["event"] == "seen"
    assert sample(api, type="transformation", hog="return event")["globals"]["event"]["event"] == "seen"


@rule("X6.1")
def test_the_newest_event_is_given_when_none_passes(
    history: History, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "PORTIONS", (2, 3))
    history.keep(
        *(stored("purchase", {"total": total}) for total in (500, *range(5))),
        *(stored("seen", {"n": n}) for n in range(3)),
    )
    found = sample(api, hog="return 1", filters=PURCHASES)
    assert (found["stored"], found["matches"]) == (True, False)
    assert found["globals"]["event"]["properties"] == {"n": 2}


@rule("X6.1")
def test_a_rare_event_is_found_far_back(house: House, history: History, api: Api) -> None:
    """However many other events came since, and some of its name that do not pass."""
    history.keep(
        stored("purchase", {"total": 500}),
        *(stored("purchase", {"total": 1}) for _ in range(300)),
        *(stored("seen") for _ in range(1_000)),
    )
    found = sample(api, hog="return 1", filters=PURCHASES)
    assert (found["stored"], found["matches"]) == (True, True)
    assert found["globals"]["event"]["properties"] == {"total": 500}
    big = {"properties": [{"key": "total", "type": "event", "operator": "gt", "value": 100}]}
    assert sample(api, hog="return 1", filters=big)["globals"]["event"]["properties"] == {"total": 500}


@rule("X6.1")
@pytest.mark.parametrize(
    ("configuration", "name", "matches"),
    [
        ({}, "$pageview", True),
        ({"filters": {"events": [{"id": "signed up", "type": "events"}]}}, "signed up", True),
        ({"filters": PURCHASES}, "purchase", False),
        ({"mappings": [{"filters": {"events": [{"id": "seen", "type": "events"}]}}]}, "seen", True),
        (
            {"type": "internal_destination", "filters": {"events": [{"id": "$insight_alert_firing"}]}},
            "$insight_alert_firing",
            True,
        ),
    ],
)
def test_without_events_one_is_made_up(
    api: Api, configuration: dict[str, Any], name: str, matches: bool
) -> None:
    configuration = {"hog": "print(event.event)", **configuration}
    found = sample(api, **configuration)
    assert (found["globals"]["event"]["event"], found["stored"], found["matches"]) == (name, False, matches)
    run = api.try_out({"configuration": configuration, "globals": found["globals"]})
    assert run["status"] == ("success" if matches else "skipped")


def test_a_wrong_configuration_is_refused_as_by_a_test_run(api: Api) -> None:
    body = {"configuration": {"hog": "return 1", "filters": []}}
    answer = api.call("POST", "/new/sample_globals/", body)
    assert (answer.status_code, list(answer.json()["configuration"])) == (400, ["filters"])


def test_a_store_that_cannot_be_read_is_no_defect(
    history: History, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: Any, **_options: Any) -> None:
        raise EventStoreUnavailableError("no room")

    monkeypatch.setattr(samples, "newest", broken)
    answer = api.call("POST", "/new/sample_globals/", {"configuration": {"hog": "return 1"}})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
