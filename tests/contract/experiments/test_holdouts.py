"""People in a holdout, from the flag to the results: shown nothing, and counted nowhere."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from tests.contract.conftest import Api

from hoglab.statistics import sample_ratio_mismatch

KEY = "button"
PEOPLE = [f"person-{number}" for number in range(160)]
ORDERS: dict[str, Any] = {
    "kind": "ExperimentMetric",
    "metric_type": "mean",
    "source": {"kind": "EventsNode", "event": "order", "math": "sum", "math_property": "amount"},
}


def event(person: str, name: str, **properties: Any) -> dict[str, Any]:
    return {"uuid": str(uuid4()), "event": name, "distinct_id": person, "properties": properties}


def exposure(person: str, variant: str) -> dict[str, Any]:
    return event(person, "$feature_flag_called", **{"$feature_flag": KEY, "$feature_flag_response": variant})


@dataclass(frozen=True)
class Scene:
    """A running experiment with a holdout, and what its flag gave to everybody."""

    api: Api
    experiment: dict[str, Any]
    holdout: str
    variants: dict[str, str]

    def ask(self, kind: str, **query: Any) -> dict[str, Any]:
        body = {"kind": kind, "experiment_id": self.experiment["id"], **query}
        found: dict[str, Any] = self.api.ok("POST", "/query/", {"query": body, "refresh": "force_blocking"})
        return found

    def sums(self) -> dict[str, tuple[int, float]]:
        found = self.ask("ExperimentQuery", metric=ORDERS)
        rows = [found["baseline"], *found["variant_results"]]
        return {row["key"]: (row["number_of_samples"], row["sum"]) for row in rows}


@pytest.fixture
def scene(api: Api) -> Scene:
    """Everybody is asked for, exposed as their SDK would, and orders for their own number."""
    share = {"properties": [], "rollout_percentage": 30}
    made = api.ok("POST", "/experiment_holdouts/", {"name": "Spring", "filters": [share]}, status=201)
    experiment = api.experiment(
        KEY, holdout_id=made["id"], metrics=[ORDERS], exposure_criteria={"filterTestAccounts": False}
    )
    experiment = api.ok("POST", f"/experiments/{experiment['id']}/launch/")
    variants = {person: api.variant(KEY, person) for person in PEOPLE}
    events = [exposure(person, variant) for person, variant in variants.items()]
    events += [event(person, "order", amount=number) for number, person in enumerate(PEOPLE)]
    api.capture(*events)
    return Scene(api, experiment, f"holdout-{made['id']}", variants)


def expected(variants: dict[str, str]) -> dict[str, tuple[int, float]]:
    """People and the sum of their orders by variant, of those who are in no holdout."""
    found = {"control": (0, 0.0), "test": (0, 0.0)}
    for number, person in enumerate(PEOPLE):
        if variants[person] in found:
            people, total = found[variants[person]]
            found[variants[person]] = (people + 1, total + number)
    return found


def test_who_is_held_out_is_in_no_variant_of_the_results(scene: Scene) -> None:
    counts = Counter(scene.variants.values())
    assert set(counts) == {"control", "test", scene.holdout}
    assert 0.15 < counts[scene.holdout] / len(PEOPLE) < 0.45
    assert scene.sums() == expected(scene.variants)
    metric = scene.experiment["metrics"][0]
    series = scene.api.ok(
        "GET",
        f"/experiments/{scene.experiment['id']}/timeseries_results/",
        params={"metric_uuid": metric["uuid"], "fingerprint": metric["fingerprint"]},
    )
    [*_, point] = series["timeseries"].values()
    assert [point["baseline"]["key"], *(row["key"] for row in point["variant_results"])] == [
        "control",
        "test",
    ]


def test_the_held_out_are_no_exposures_and_shift_no_sample_ratio(scene: Scene) -> None:
    found = scene.ask("ExperimentExposureQuery", feature_flag={"key": KEY})
    counts = {key: people for key, (people, _) in expected(scene.variants).items()}
    assert found["total_exposures"] == counts
    mismatch = sample_ratio_mismatch(counts, {"control": 50, "test": 50})
    assert mismatch is not None
    assert found["sample_ratio_mismatch"] == {
        "expected": mismatch.expected,
        "p_value": mismatch.p_value,
        "anytime_p_value": mismatch.anytime_p_value,
        "is_mismatch": False,
    }
    health = scene.api.ok("GET", f"/experiments/{scene.experiment['id']}/health/")
    assert "holdout_conflict" not in {finding["code"] for finding in health["findings"]}


def test_who_leaves_the_holdout_belongs_to_the_variant_seen_then(scene: Scene) -> None:
    """A holdout is no variant, so that nobody was in two; and orders count from the exposure on."""
    leaver = next(person for person, variant in scene.variants.items() if variant == scene.holdout)
    scene.api.capture(exposure(leaver, "test"), event(leaver, "order", amount=1000))
    people, total = expected(scene.variants)["test"]
    assert scene.sums()["test"] == (people + 1, total + 1000)


def test_a_custom_exposure_of_the_held_out_counts_no_more(scene: Scene) -> None:
    criteria = {
        "filterTestAccounts": False,
        "exposure_config": {"kind": "ExperimentEventExposureConfig", "event": "saw", "properties": []},
    }
    scene.api.ok("PATCH", f"/experiments/{scene.experiment['id']}/", {"exposure_criteria": criteria})
    seen = [
        event(person, "saw", **{f"$feature/{KEY}": variant}) for person, variant in scene.variants.items()
    ]
    scene.api.capture(*seen)
    assert {key: people for key, (people, _) in scene.sums().items()} == {
        key: people for key, (people, _) in expected(scene.variants).items()
    }
