"""Any JSON body gets an answer of the contract: never a 500, and a refused body changes nothing."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.experiments.conftest import Lab
from tests.generated import examples

from hoglab.experiments.wire.schemas import ExperimentCreate

METRIC = {
    "kind": "ExperimentMetric",
    "metric_type": "mean",
    "name": "Purchases",
    "source": {"kind": "EventsNode", "event": "purchase"},
    "goal": "increase",
}
FIELDS = [field.alias or name for name, field in ExperimentCreate.model_fields.items()]
WORDS = st.sampled_from(
    [
        *(
            "",
            "control",
            "test",
            "events",
            "purchase",
            "ExperimentMetric",
            "mean",
            "funnel",
            "ratio",
            "EventsNode",
        ),
        *(
            "ActionsNode",
            "bayesian",
            "frequentist",
            "won",
            "web",
            "2026-01-01",
            "2026-01-01T00:00:00Z",
            "yes",
            "\0",
        ),
    ]
)
KEYS = st.sampled_from(
    [
        *(
            "kind",
            "metric_type",
            "source",
            "series",
            "event",
            "id",
            "uuid",
            "math",
            "properties",
            "method",
            "key",
        ),
        *(
            "feature_flag_variants",
            "rollout_percentage",
            "split_percent",
            "filters",
            "groups",
            "multivariate",
        ),
        *(
            "variants",
            "exposure_config",
            "filterTestAccounts",
            "metadata",
            "type",
            "excluded_variants",
            "holdout",
        ),
        *("minimum_detectable_effect", "baseline_variant_key", "numerator", "denominator", "breakdownFilter"),
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS
    | st.text(max_size=10)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)
METRICS = st.lists(
    st.builds(lambda more: {**METRIC, **more}, st.dictionaries(KEYS, VALUES, max_size=2)) | VALUES, max_size=3
)
BODIES = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=5) | st.fixed_dictionaries(
    {},
    optional={"metrics": METRICS, "metrics_secondary": METRICS, "parameters": VALUES, "stats_config": VALUES},
)
SETTINGS = settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def _is_answer(status: int, body: Any) -> bool:
    return status in (200, 201) or (status in (400, 404) and {"type", "code", "detail", "attr"} == set(body))


@SETTINGS
@given(body=BODIES | VALUES, named=st.booleans())
def test_create(lab: Lab, body: Any, named: bool) -> None:
    if named and isinstance(body, dict):
        body = {"name": "n", "feature_flag_key": "a-flag", **body}
    before = lab.ok("GET", "/experiments/")["count"], lab.ok("GET", "/feature_flags/")["count"]
    answer = lab.call("POST", "/experiments/", body if body is not None else {})
    assert _is_answer(answer.status_code, answer.json()), answer.text
    if answer.status_code != 201:
        after = lab.ok("GET", "/experiments/")["count"], lab.ok("GET", "/feature_flags/")["count"]
        assert after == before


@SETTINGS
@given(body=BODIES, launched=st.booleans())
def test_patch(lab: Lab, body: dict[str, Any], launched: bool) -> None:
    key = "launched" if launched else "draft"
    found = lab.ok("GET", f"/experiments/?search={key}&archived=false")["results"]
    path = (
        f"/experiments/{found[0]['id']}/"
        if found
        else f"/experiments/{lab.create(key, name=key, start_date='2026-01-01' if launched else None)['id']}/"
    )
    before = lab.ok("GET", path)
    answer = lab.call("PATCH", path, body)
    assert _is_answer(answer.status_code, answer.json()), answer.text
    if answer.status_code != 200:
        assert lab.ok("GET", path) == before


@SETTINGS
@given(
    body=st.dictionaries(
        st.sampled_from(["name", "description", "query", "tags", "filters"]), VALUES, max_size=4
    )
)
def test_holdouts_and_saved_metrics(lab: Lab, body: dict[str, Any]) -> None:
    for path in ("/experiment_holdouts/", "/experiment_saved_metrics/"):
        answer = lab.call("POST", path, {"name": "n", **body})
        assert _is_answer(answer.status_code, answer.json()), answer.text
        if answer.status_code == 201:
            created = answer.json()["id"]
            answer = lab.call("PATCH", f"{path}{created}/", body)
            assert _is_answer(answer.status_code, answer.json()), answer.text
            assert lab.call("DELETE", f"{path}{created}/").status_code == 204
