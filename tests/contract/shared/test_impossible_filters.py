"""Conditions that can never match: refused with their place, wherever the API takes filters of properties."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel
from tests.contract.conftest import Api
from tests.contract.shared.test_unknown_keys import CRITERIA, EVENT, KINDS, MEAN, Place

from hoglab.http.fields.property_filters import WirePropertyFilter
from hoglab.http.fields.unknown_keys import Keys

IMPOSSIBLE: list[tuple[str, Any]] = [
    ("nonsense", "a"),
    *((name, value) for name in ("gt", "gte", "lt", "lte", "min", "max")
      for value in ("abc", "", "nan", "inf", None, True, {}, ["abc"])),
    *((name, value) for name in ("between", "not_between")
      for value in (5, "5", [3, 1], ["a", 2], [1], [1, 2, 3], ["nan", 1], [], None)),
    *((name, value) for name in ("regex", "not_regex") for value in ("[", ["["], None, 5)),
    *((f"is_date_{way}", value) for way in ("after", "before", "exact")
      for value in ("gestern", ["gestern"], 17, None, True, "2026-02-30", "")),
    *((f"semver_{way}", "abc") for way in ("eq", "neq", "gt", "gte", "lt", "lte", "tilde", "caret", "wildcard")),
    *((f"{way}icontains_multi", value) for way in ("", "not_") for value in ([], None, [{}], [["a"]])),
    *((f"{way}{place}", value) for way in ("", "not_") for place in ("icontains", "starts_with", "ends_with")
      for value in ({}, None, [{}], [["a"]])),
]  # fmt: skip
"""Operators with operands that match nobody, or that no engine can compare."""

Door = tuple[str, str, Callable[[dict[str, Any]], dict[str, Any]]]
"""Method and path of a request, and its body with a filter in it."""


def leaves(value: Any, path: Place = ()) -> Iterator[Place]:
    """Yield the places of filters with an operator in JSON."""
    if isinstance(value, dict):
        if {"key", "operator"} <= value.keys():
            yield path
        for key, part in value.items():
            yield from leaves(part, (*path, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from leaves(part, (*path, index))


def with_filter(value: Any, place: Place, leaf: dict[str, Any]) -> Any:
    """Return a copy of JSON whose filter at a place has another operator and value."""
    changed = copy.deepcopy(value)
    target = changed
    for part in place:
        target = target[part]
    target.update({name: leaf[name] for name in ("operator", "value")})
    return changed


def saved_doors() -> Iterator[tuple[str, Door]]:
    """Yield a door for each filter inside of what is saved, as the test of unknown keys writes it out."""
    for name, kind in KINDS.items():
        for place in leaves(kind.value):
            shown = ".".join(map(str, place))

            def body(leaf: dict[str, Any], kind: Any = kind, place: Place = place) -> dict[str, Any]:
                whole = kind.body(1, with_filter(kind.value, place, leaf))
                if kind.path == "/hog_functions/":
                    whole["enabled"] = True  # a draft is kept, with its error beside its filters
                    if kind.field == "filters":
                        whole.pop("mappings")  # which would choose the events instead
                return whole

            yield f"{name} {shown}", ("POST", kind.path, body)


PURCHASES = {"kind": "EventsNode", "event": "purchase"}
EXPERIMENT_OF_TEST = 0
"""Stands for the id of a running experiment in the bodies below."""
ASKED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "trends": lambda leaf: {"kind": "TrendsQuery", "series": [PURCHASES], "properties": [leaf]},
    "trends series": lambda leaf: {"kind": "TrendsQuery", "series": [PURCHASES | {"properties": [leaf]}]},
    "trends group": lambda leaf: {
        "kind": "TrendsQuery", "series": [PURCHASES], "properties": {"type": "OR", "values": [leaf]}
    },
    "result": lambda leaf: {
        "kind": "ExperimentQuery", "experiment_id": EXPERIMENT_OF_TEST,
        "metric": MEAN | {"source": PURCHASES | {"properties": [leaf]}},
    },
    "result of criteria": lambda leaf: {
        "kind": "ExperimentExposureQuery", "experiment_id": EXPERIMENT_OF_TEST,
        "exposure_criteria": CRITERIA | {"exposure_config": CRITERIA["exposure_config"] | {"properties": [leaf]}},
    },
    "plan": lambda leaf: {
        "kind": "ExperimentPlanQuery", "experiment_id": EXPERIMENT_OF_TEST,
        "metric": MEAN | {"source": PURCHASES | {"properties": [leaf]}},
    },
    "simulation": lambda leaf: {
        "kind": "ExperimentSimulationQuery", "experiment_id": EXPERIMENT_OF_TEST,
        "metric": MEAN | {"source": PURCHASES | {"properties": [leaf]}},
    },
}  # fmt: skip
DOORS: dict[str, Door] = {
    **dict(saved_doors()),
    "holdout": (
        "POST", "/experiment_holdouts/",
        lambda leaf: {"name": "h", "filters": [{"properties": [leaf | {"type": "person"}], "rollout_percentage": 5}]},
    ),
    "test accounts": ("PATCH", "", lambda leaf: {"test_account_filters": [leaf]}),
    "group of test accounts": (
        "PATCH", "", lambda leaf: {"test_account_filters": [{"type": "OR", "values": [leaf]}]}
    ),
    "site function": (
        "POST", "/hog_functions/",
        lambda leaf: {"name": "f", "type": "site_app", "enabled": True, "filters": {"properties": [leaf]},
                      "hog": "export function onLoad() {}"},
    ),
    **{
        f"function {name}": (
            "POST", "/hog_functions/",
            lambda leaf, filters=filters: {"name": "f", "hog": "return 1", "enabled": True, "filters": filters(leaf)},
        )
        for name, filters in {
            "group": lambda leaf: {"properties": [{"type": "OR", "values": [leaf]}]},
            "person updates": lambda leaf: {"source": "person-updates", "properties": [leaf | {"type": "person"}]},
            "internal events": lambda leaf: {"source": "internal-events", "properties": [leaf]},
        }.items()
    },
}  # fmt: skip
FIELDS = {
    "CohortFilters.properties", "CohortRules.values", "CohortRule.event_filters", "ReleaseGroup.properties",
    "WirePropertyGroup.values", "OpenPropertyGroup.values", "Filters.properties", "FilterEntry.properties",
    "StepIn.properties", "ExposureConfig.properties", "ProjectChanges.test_account_filters",
    *(f"{node}.{name}" for node in ("_Node", "EventsNode", "ActionsNode", "ExperimentDataWarehouseNode")
      for name in ("properties", "fixedProperties")),
}  # fmt: skip
"""Fields of request models that hold filters, each behind some of the doors; nodes of metrics are read alike."""


def fields_of_filters() -> set[str]:
    """Return the fields of all request models that hold filters of properties themselves."""

    def kinds(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
        yield model
        for further in model.__subclasses__():
            yield from kinds(further)

    def holds_filters(kind: Any) -> bool:
        if isinstance(kind, Keys):
            return holds_filters(kind.of)
        if isinstance(kind, type) and issubclass(kind, WirePropertyFilter):
            return True
        return get_origin(kind) is not None and any(holds_filters(part) for part in get_args(kind))

    return {
        f"{model.__name__}.{name}"
        for model in kinds(BaseModel)
        if model.__module__.startswith("hoglab.")
        for name, field in model.model_fields.items()
        if holds_filters(field.annotation) or any(map(holds_filters, field.metadata))
    }


def wrong(operator: str, value: Any) -> dict[str, Any]:
    return {**EVENT, "operator": operator, "value": value}


@pytest.mark.parametrize("name", DOORS)
def test_what_is_saved(api: Api, name: str) -> None:
    method, path, body = DOORS[name]
    saved = []
    for operator, value in IMPOSSIBLE:
        answer = api.call(method, path, body(wrong(operator, value)))
        if answer.status_code != 400:
            saved.append((operator, value, answer.status_code))
            continue
        error = answer.json()
        assert any(name in error["detail"] for name in ("size", "plan", "properties")), error
    assert saved == []


@pytest.mark.parametrize("name", ASKED)
def test_what_is_asked(api: Api, name: str) -> None:
    experiment = api.experiment(start_date="2026-01-01T00:00:00Z")["id"]
    answered = []
    for operator, value in IMPOSSIBLE:
        asked = ASKED[name](wrong(operator, value))
        if "experiment_id" in asked:
            asked["experiment_id"] = experiment
        answer = api.call("POST", "/query/", {"query": asked})
        if answer.status_code != 400:
            answered.append((operator, value, answer.status_code))
    assert answered == []


@pytest.mark.parametrize("path", ["/events/", "/events/live/", "/persons/"])
def test_lists(api: Api, path: str) -> None:
    answered = []
    kind = {"type": "person"} if path == "/persons/" else {}
    for operator, value in IMPOSSIBLE:
        options = {"params": {"properties": json.dumps([wrong(operator, value) | kind])}}
        answer = api.call("GET", path, **options)
        if answer.status_code != 400:
            answered.append((operator, value, answer.status_code))
    assert answered == []


NAMELESS = {"kind": "EventsNode", "event": ""}
BEHAVIOUR = {
    "type": "behavioral", "value": "performed_event", "event_type": "events", "key": "paid", "time_interval": "day",
}  # fmt: skip
NOBODY: dict[str, tuple[str, dict[str, Any]]] = {
    "source": ("/experiment_saved_metrics/", {"query": MEAN | {"source": NAMELESS}}),
    "denominator": (
        "/experiment_saved_metrics/",
        {
            "query": {
                "kind": "ExperimentMetric",
                "metric_type": "ratio",
                "numerator": PURCHASES,
                "denominator": NAMELESS,
            }
        },
    ),
    "funnel": (
        "/experiment_saved_metrics/",
        {"query": {"kind": "ExperimentMetric", "metric_type": "funnel", "series": [PURCHASES, NAMELESS]}},
    ),
    "inline metric": ("/experiments/", {"feature_flag_key": "e", "metrics": [MEAN | {"source": NAMELESS}]}),
    "exposure": (
        "/experiments/",
        {
            "feature_flag_key": "e",
            "exposure_criteria": {
                "exposure_config": {"kind": "ExperimentEventExposureConfig", "event": "", "properties": []}
            },
        },
    ),
    **{
        f"window of {days} days": (
            "/cohorts/",
            {"filters": {"properties": {"type": "AND", "values": [BEHAVIOUR | {"time_value": days}]}}},
        )
        for days in (0, "0", -1)
    },
}
"""Definitions that nobody can meet, for other reasons than an operand."""


@pytest.mark.parametrize("name", NOBODY)
def test_definitions_that_nobody_can_meet_are_refused(api: Api, name: str) -> None:
    path, body = NOBODY[name]
    api.refused("POST", path, {"name": "n", **body})


def test_no_field_of_filters_is_without_a_door() -> None:
    assert fields_of_filters() == FIELDS


def test_the_doors_are_open(api: Api) -> None:
    """Each door takes the same filter with an operand that can match."""
    for number, (method, path, body) in enumerate(DOORS.values()):
        sent = body({**EVENT, "operator": "gt", "value": 5})
        named = {
            name: f"{sent[name]}-{number}" for name in ("name", "key", "feature_flag_key") if name in sent
        }
        answer = api.call(method, path, sent | named)
        assert answer.is_success, (path, answer.text)
