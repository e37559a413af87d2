"""From the flag to the result with posthog-node: an experiment on 2,000 people (spec sdk-wire 6.15)."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from tests.clients.node_client import NodeClient
from tests.clients.node_process import NodeProcess
from tests.clients.project import VARIANTS, Project

pytestmark = pytest.mark.clients

KEY = "loop-experiment"
USERS = 2_000
AT_ONCE = 250
METRIC = {
    "kind": "ExperimentMetric",
    "metric_type": "mean",
    "source": {"kind": "EventsNode", "event": "bought", "math": "sum", "math_property": "amount"},
}


def drawn(distinct_id: str) -> str:
    """The variant of a person, worked out here."""
    digest = hashlib.sha1(f"{KEY}.{distinct_id}variant".encode(), usedforsecurity=False).hexdigest()
    return "control" if int(digest[:15], 16) / 2**60 < 0.5 else "test"


def amount(number: int, variant: str) -> int:
    """What a person spends: every third in control, every second in test; 0 for nothing."""
    every = 3 if variant == "control" else 2
    return 1 + number % 7 if number % every == 0 else 0


def in_chunks(client: NodeClient, method: str, calls: list[list[Any]]) -> list[Any]:
    answers: list[Any] = []
    for start in range(0, len(calls), AT_ONCE):
        answers += client.together(method, calls[start : start + AT_ONCE])
    return answers


def test_an_experiment_on_two_thousand_people(project: Project, node: NodeProcess) -> None:
    experiment = project.post(
        "/experiments/",
        {
            "name": "Loop",
            "feature_flag_key": KEY,
            "start_date": "2026-01-01T00:00:00Z",
            "parameters": {"feature_flag_variants": VARIANTS["variants"]},
            "metrics": [METRIC],
        },
    )
    people = [f"user-{number}" for number in range(USERS)]
    expected = [drawn(distinct_id) for distinct_id in people]
    client = NodeClient(node, project, flushAt=100)
    assert in_chunks(client, "getFeatureFlag", [[KEY, distinct_id] for distinct_id in people]) == expected

    def result() -> dict[str, Any]:
        query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": METRIC}
        answer: dict[str, Any] = project.ask({"query": query, "refresh": "force_blocking"})
        return answer

    def sums(answer: dict[str, Any]) -> dict[str, tuple[int, float, float]]:
        rows = [answer["baseline"], *answer["variant_results"]]
        return {row["key"]: (row["number_of_samples"], row["sum"], row["sum_squares"]) for row in rows}

    # The order of two batches is that of their sending only once the first is in: by its sent_at, a batch that
    # was long under way moves all its events by that time.
    project.wait(lambda: sum(samples for samples, _, _ in sums(result()).values()) == USERS)
    spent = [amount(number, variant) for number, variant in enumerate(expected)]
    bought = [
        [{"distinctId": distinct_id, "event": "bought", "properties": {"amount": each}}]
        for distinct_id, each in zip(people, spent, strict=True)
        if each
    ]
    in_chunks(client, "capture", bought)
    assert len(client.shut_down()) == USERS + len(bought)

    wanted = {
        variant: (
            expected.count(variant),
            sum(each for each, of in zip(spent, expected, strict=True) if of == variant),
            sum(each**2 for each, of in zip(spent, expected, strict=True) if of == variant),
        )
        for variant in ("control", "test")
    }
    project.wait(lambda: sums(result()) == wanted)
    assert sums(result()) == wanted
    (test,) = result()["variant_results"]
    assert test["chance_to_win"] > 0.99
