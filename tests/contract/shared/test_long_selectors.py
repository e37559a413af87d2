"""Selectors of page elements have a bounded length at every door that takes one."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from tests.contract.conftest import Api

SELECTOR = "." + "a" * 1_000
LEAF = {"key": "selector", "type": "element", "operator": "exact", "value": SELECTOR}
NODE = {"kind": "EventsNode", "event": "$autocapture", "properties": [LEAF]}
CODE = {"type": "destination", "name": "F", "hog": "return 1", "enabled": True}
STEP = {"event": "$autocapture", "selector": SELECTOR}

DOORS: dict[str, tuple[str, dict[str, Any] | None]] = {
    "action": ("/actions/", {"name": "A", "steps": [STEP]}),
    "filter of an action": ("/actions/", {"name": "A", "steps": [{"properties": [LEAF]}]}),
    "function": ("/hog_functions/", {**CODE, "filters": {"properties": [LEAF]}}),
    "events": ("/events/?properties=" + quote(json.dumps([LEAF])), None),
    "trends": ("/query/", {"query": {"kind": "TrendsQuery", "series": [NODE]}}),
    "metric": (
        "/experiments/",
        {"name": "E", "feature_flag_key": "f",
         "metrics": [{"kind": "ExperimentMetric", "metric_type": "mean", "source": NODE}]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
def test_a_selector_beyond_the_limit_is_refused(api: Api, door: str) -> None:
    path, body = DOORS[door]
    assert "at most 1000 characters" in api.refused("GET" if body is None else "POST", path, body)["detail"]
