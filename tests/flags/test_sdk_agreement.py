"""Server and SDK must give the same value: our matching against the evaluator inside the real PostHog client.

Flags and people are drawn at random (seeded, see `generate`). What the client cannot decide on its own it answers
with None; those pairs are left out and counted, so that the test cannot pass by comparing nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime

import pytest
from tests.flags.generate import COHORTS, sample

posthog = pytest.importorskip("posthog")

SAMPLES = int(os.environ.get("HOGLAB_TESTS_AGREEMENT_SAMPLES", "6"))
"""Projects to compare, each of 40 flags and 40 people; 40 of them make more than 50,000 pairs."""


@pytest.fixture
def client():
    client = posthog.Posthog("phc_test", host="http://127.0.0.1:9", send=False)
    yield client
    client.shutdown()


@pytest.mark.parametrize("seed", range(SAMPLES))
def test_values_agree(seed, client, world):
    drawn = sample(seed)
    for flag in drawn.flags:
        world.flag(
            flag["key"],
            flag["filters"],
            id=flag["id"],
            active=flag["active"],
            bucketing_identifier=flag["bucketing_identifier"],
        )
    for cohort_id, tree in COHORTS.items():
        world.cohort(cohort_id, tree)
    world.now = lambda: datetime.now(UTC)
    definitions = drawn.definitions()
    client.feature_flags = definitions["flags"]
    client.cohorts = definitions["cohorts"]
    client.group_type_mapping = definitions["group_type_mapping"]

    counts: Counter[str] = Counter()
    for person in drawn.people:
        request = asdict(person)
        ours = world.all(**request)
        evaluations = client.evaluate_flags(**request, only_evaluate_locally=True)
        for flag in drawn.flags:
            theirs = evaluations.get_flag(flag["key"], send_feature_flag_events=False)
            if theirs is None:
                counts["undecided"] += 1
                continue
            mine = ours[flag["key"]].value if flag["key"] in ours else False
            counts["compared"] += 1
            counts[f"is {theirs}"] += 1
            assert mine == theirs, (flag, person)
    assert counts["compared"] > 1_300, counts
    assert len(counts) > 5, counts  # compared, undecided, and at least four different values
