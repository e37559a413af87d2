"""Server and SDK must give the same value: our matching against the evaluator inside the real PostHog client.

Flags and people are drawn at random (seeded). What the client cannot decide on its own it answers with None;
those pairs are left out and counted, so that the test cannot pass by comparing nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

posthog = pytest.importorskip("posthog")

WORDS = [
    "pro",
    "free",
    "Enterprise",
    "de",
    "DE",
    "us",
    "",
    "true",
    "False",
    "5",
    "10",
    "9.5",
    "ab",
    "b",
    "É",
    "straße",
]
NUMBERS = [0, 1, 5, 9, 10, 9.5, -3, 1000]
VERSIONS = [
    "1.2.3",
    "1.2.4",
    "1.10.0",
    "0.2.3",
    "0.2.9",
    "0.3.0",
    "0.0.3",
    "0.0.4",
    "2.0.0",
    "v1.2.3",
    "1.2",
    "1",
]
PATTERNS = ["^p", "o$", "[0-9]+", "e|E", "^$", ".*", "(", "[b-", "ra+"]
DATES = ["2024-01-01", "2025-06-01T10:00:00Z", "2026-01-01 00:00:00", "-7d", "30d", "2m", "-1y", "5h", "3w"]
TEXT_OPERATORS = [
    "icontains", "not_icontains", "starts_with", "not_starts_with", "ends_with", "not_ends_with",
]  # fmt: skip
VERSION_OPERATORS = [
    "semver_eq", "semver_neq", "semver_gt", "semver_gte", "semver_lt", "semver_lte", "semver_tilde", "semver_caret",
]  # fmt: skip


class Draw:
    """Random flags, cohorts and people that both sides support."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def property_filter(self) -> dict[str, Any]:
        choose = self.random
        kind = choose.choice(["equality", "text", "regex", "number", "date", "version", "wildcard"])
        if kind == "equality":
            pool = [*WORDS, *NUMBERS, True, False]
            many = choose.random() < 0.4
            value: Any = choose.sample(pool, choose.randint(0, 3)) if many else choose.choice(pool)
            made = {
                "key": choose.choice(["word", "number", "bool"]),
                "operator": choose.choice(["exact", "is_not"]),
                "value": value,
            }
        elif kind == "text":
            made = {"key": "word", "operator": choose.choice(TEXT_OPERATORS), "value": choose.choice(WORDS)}
        elif kind == "regex":
            made = {
                "key": "word",
                "operator": choose.choice(["regex", "not_regex"]),
                "value": choose.choice(PATTERNS),
            }
        elif kind == "number":
            bound = choose.choice(NUMBERS)
            value = str(bound) if choose.random() < 0.5 else bound
            made = {"key": "number", "operator": choose.choice(["gt", "gte", "lt", "lte"]), "value": value}
        elif kind == "date":
            operator = choose.choice(["is_date_before", "is_date_after"])
            made = {"key": "date", "operator": operator, "value": choose.choice(DATES)}
        elif kind == "version":
            made = {
                "key": "version",
                "operator": choose.choice(VERSION_OPERATORS),
                "value": choose.choice(VERSIONS),
            }
        else:
            made = {
                "key": "version",
                "operator": "semver_wildcard",
                "value": choose.choice(["1.*", "0.*", "1.2.*", "0.2.*"]),
            }
        return {"type": "person", **made}

    def condition(self, variants: list[str]) -> dict[str, Any]:
        choose = self.random
        condition: dict[str, Any] = {
            "properties": [self.property_filter() for _ in range(choose.choice([0, 1, 1, 2]))],
            "rollout_percentage": choose.choice([None, 0, 1, 10, 33.33, 50, 75, 99, 100]),
        }
        if variants and choose.random() < 0.3:
            condition["variant"] = choose.choice([*variants, "gone"])
        if choose.random() < 0.15:
            condition["properties"].append(
                {
                    "key": "id",
                    "type": "cohort",
                    "value": choose.choice([1, 2, 3]),
                    "operator": choose.choice(["in", "not_in"]),
                }
            )
        return condition

    def flag(self, number: int, earlier: list[dict[str, Any]]) -> dict[str, Any]:
        choose = self.random
        shares = choose.choice(
            [None, [50, 50], [34, 33, 33], [33.33, 33.33, 33.33], [10, 90], [40], [0, 100]]
        )
        keys = ["control", "test", "extra"][: len(shares or [])]
        filters: dict[str, Any] = {
            "groups": [self.condition(keys) for _ in range(choose.randint(0, 4))],
            "multivariate": shares
            and {
                "variants": [{"key": k, "rollout_percentage": s} for k, s in zip(keys, shares, strict=True)]
            },
            "early_exit": choose.random() < 0.2,
        }
        if choose.random() < 0.2:
            filters["holdout"] = {"id": 42, "exclusion_percentage": choose.choice([0, 10, 50, 100])}
        self.aggregate(filters)
        by_device = choose.random() < 0.1
        # The client evaluates a dependency for the subject of the flag that has it (company, device), the
        # server for the dependency's own; they agree on what is about persons.
        persons = [flag for flag in earlier if is_about_persons(flag)]
        plain = not by_device and not any(c["aggregation_group_type_index"] == 0 for c in filters["groups"])
        if persons and plain and filters["groups"] and choose.random() < 0.4:
            base = choose.choice(persons)
            filters["groups"][0]["properties"].append(
                {
                    "type": "flag",
                    "key": str(base["id"]),
                    "operator": "flag_evaluates_to",
                    "value": choose.choice([True, False, "control", "test"]),
                }
            )
        return {
            "id": number,
            "key": f"flag-{number}",
            "active": choose.random() < 0.95,
            "version": 1,
            "filters": filters,
            "bucketing_identifier": "device_id" if by_device else None,
        }

    def aggregate(self, filters: dict[str, Any]) -> None:
        """Make some conditions about the company, in the form that saving a flag gives them."""
        kind = self.random.choice(["person", "person", "person", "company", "mixed"])
        for condition in filters["groups"]:
            by_company = kind == "company" or (kind == "mixed" and self.random.random() < 0.5)
            condition["aggregation_group_type_index"] = 0 if by_company else None
            if by_company:
                condition["properties"] = [
                    {**f, "type": "group", "group_type_index": 0}
                    for f in condition["properties"]
                    if f["type"] == "person"
                ]
        common = {condition["aggregation_group_type_index"] for condition in filters["groups"]}
        filters["aggregation_group_type_index"] = common.pop() if len(common) == 1 else None

    def properties(self) -> dict[str, Any]:
        choose = self.random
        moment = datetime.now(UTC) - timedelta(hours=choose.randint(1, 20_000) + 0.5)
        return {
            "word": choose.choice(WORDS),
            "number": choose.choice([*NUMBERS, str(choose.choice(NUMBERS))]),
            "bool": choose.choice([True, False, "true", "FALSE", "banana"]),
            "date": choose.choice(
                [moment.isoformat(), moment.strftime("%Y-%m-%d"), moment.strftime("%Y-%m-%d %H:%M:%S")]
            ),
            "version": choose.choice(VERSIONS),
        }


COHORTS = {
    1: {
        "type": "AND",
        "values": [{"key": "word", "type": "person", "value": ["pro", "free"], "operator": "exact"}],
    },
    2: {
        "type": "OR",
        "values": [
            {
                "type": "AND",
                "values": [
                    {"key": "number", "type": "person", "value": 5, "operator": "gt", "negation": True}
                ],
            },
            {"type": "AND", "values": [{"key": "id", "type": "cohort", "value": 1, "negation": False}]},
        ],
    },
    3: {},
}


def is_about_persons(flag: dict[str, Any]) -> bool:
    groups = flag["filters"]["groups"]
    return not flag["bucketing_identifier"] and all(g["aggregation_group_type_index"] is None for g in groups)


def sdk_form(flag: dict[str, Any], by_id: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """A flag as local evaluation serves it: dependencies by key, with the chain below them."""
    groups = []
    for condition in flag["filters"]["groups"]:
        properties = [
            {**f, "key": by_id[int(f["key"])]["key"], "dependency_chain": chain(int(f["key"]), by_id)}
            if f["type"] == "flag"
            else f
            for f in condition["properties"]
        ]
        groups.append({**condition, "properties": properties})
    return {**flag, "filters": {**flag["filters"], "groups": groups}}


def chain(flag_id: int, by_id: dict[int, dict[str, Any]]) -> list[str]:
    keys: list[str] = []
    for condition in by_id[flag_id]["filters"]["groups"]:
        for f in condition["properties"]:
            if f["type"] == "flag":
                keys += [key for key in chain(int(f["key"]), by_id) if key not in keys]
    return [*keys, by_id[flag_id]["key"]]


@pytest.fixture
def client():
    client = posthog.Posthog("phc_test", host="http://127.0.0.1:9", send=False)
    yield client
    client.shutdown()


@pytest.mark.parametrize("seed", range(12))
def test_values_agree(seed, client, world):
    draw = Draw(seed)
    flags: list[dict[str, Any]] = []
    for number in range(1, 41):
        flags.append(draw.flag(number, flags))
    by_id = {flag["id"]: flag for flag in flags}
    for flag in flags:
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
    client.feature_flags = [sdk_form(flag, by_id) for flag in flags]
    client.cohorts = {str(cohort_id): tree for cohort_id, tree in COHORTS.items()}
    client.group_type_mapping = {"0": "company"}

    counts: Counter[str] = Counter()
    for number in range(40):
        distinct_id = f"user-{seed}-{number}"
        person, company = draw.properties(), draw.properties()
        groups = {"company": f"acme-{number % 7}"} if number % 3 else {}
        device_id = f"device-{number}" if number % 2 else None
        ours = world.all(
            distinct_id,
            person_properties=person,
            groups=groups,
            group_properties={"company": company},
            device_id=device_id,
        )
        evaluations = client.evaluate_flags(
            distinct_id,
            groups=groups,
            person_properties=person,
            group_properties={"company": company},
            device_id=device_id,
            only_evaluate_locally=True,
        )
        for flag in flags:
            theirs = evaluations.get_flag(flag["key"], send_feature_flag_events=False)
            if theirs is None:
                counts["undecided"] += 1
                continue
            mine = ours[flag["key"]].value if flag["key"] in ours else False
            counts["compared"] += 1
            counts[f"is {theirs}"] += 1
            assert mine == theirs, (flag, distinct_id, person, company, groups)
    assert counts["compared"] > 1_000, counts
    assert min(counts["is True"], counts["is False"], counts["is control"]) > 20, counts
