"""Random flags, cohorts and people that server and SDKs must agree on; everything follows from a seed.

Written for tests that compare evaluators: the values are chosen so that most filters match for some people and
not for others, and only operators appear that PostHog's SDKs can evaluate on their own.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from hoglab.filters.operands import operand_problem

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
    """Random flags and people that both sides support.

    With ``savable``, flags keep to what the API accepts: shares that sum to 100, overrides and variants that exist,
    operands that can match, and at least one condition. Without it they also have the odd shapes of old rows.
    """

    def __init__(self, seed: int, *, savable: bool = False) -> None:
        self.random = random.Random(seed)
        self.savable = savable

    def property_filter(self) -> dict[str, Any]:
        choose = self.random
        kind = choose.choice(
            ["equality", "text", "regex", "number", "date", "version", "wildcard", "presence"]
        )
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
            value = str(bound) if self.savable or choose.random() < 0.5 else bound
            made = {"key": "number", "operator": choose.choice(["gt", "gte", "lt", "lte"]), "value": value}
        elif kind == "date":
            operator = choose.choice(["is_date_before", "is_date_after"])
            made = {"key": "date", "operator": operator, "value": choose.choice(DATES)}
        elif kind == "presence":
            made = {
                "key": choose.choice(["word", "nothing"]),
                "operator": choose.choice(["is_set", "is_not_set"]),
                "value": choose.choice(["is_set", "", None]),
            }
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
        if self.savable and operand_problem(made["operator"], made["value"]) is not None:
            return self.property_filter()
        return {"type": "person", **made}

    def condition(self, variants: list[str]) -> dict[str, Any]:
        choose = self.random
        condition: dict[str, Any] = {
            "properties": [self.property_filter() for _ in range(choose.choice([0, 1, 1, 2]))],
            "rollout_percentage": choose.choice([None, 0, 1, 10, 33.33, 50, 75, 99, 100]),
        }
        if variants and choose.random() < 0.3:
            condition["variant"] = choose.choice(variants if self.savable else [*variants, "gone"])
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
        splits: list[Any] = [None, [50, 50], [34, 33, 33], [33.33, 33.33, 33.34], [10, 90], [0, 100]]
        shares = choose.choice(splits if self.savable else [*splits, [33.33, 33.33, 33.33], [40]])
        keys = ["control", "test", "extra"][: len(shares or [])]
        filters: dict[str, Any] = {
            "groups": [self.condition(keys) for _ in range(choose.randint(1 if self.savable else 0, 4))],
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
            variants = [
                variant["key"] for variant in (base["filters"]["multivariate"] or {}).get("variants", ())
            ]
            values = [True, False, *(variants if self.savable else ["control", "test"])]
            filters["groups"][0]["properties"].append(
                {
                    "type": "flag",
                    "key": str(base["id"]),
                    "operator": "flag_evaluates_to",
                    "value": choose.choice(values),
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

    def properties(self, now: datetime) -> dict[str, Any]:
        choose = self.random
        moment = now - timedelta(hours=choose.randint(1, 20_000) + 0.5)
        return {
            "word": choose.choice(WORDS),
            "number": choose.choice([*NUMBERS, str(choose.choice(NUMBERS))]),
            "nothing": None,
            "bool": choose.choice([True, False, "true", "FALSE", "banana"]),
            "date": choose.choice(
                [moment.isoformat(), moment.strftime("%Y-%m-%d"), moment.strftime("%Y-%m-%d %H:%M:%S")]
            ),
            "version": choose.choice(VERSIONS),
        }

    def person(self, seed: int, number: int, now: datetime) -> Person:
        return Person(
            distinct_id=f"user-{seed}-{number}",
            person_properties=self.properties(now),
            groups={"company": f"acme-{number % 7}"} if number % 3 else {},
            group_properties={"company": self.properties(now)},
            device_id=f"device-{number}" if number % 2 else None,
        )


COHORTS: dict[int, dict[str, Any]] = {
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


@dataclass(frozen=True)
class Person:
    """Somebody to evaluate flags for: the arguments of an SDK's evaluation call."""

    distinct_id: str
    person_properties: dict[str, Any]
    groups: dict[str, str]
    group_properties: dict[str, dict[str, Any]]
    device_id: str | None


@dataclass(frozen=True)
class Sample:
    """A project of flags and the people to evaluate them for.

    ``flags`` have the stored form, dependencies by id; `definitions` is what an SDK would be sent.
    """

    flags: list[dict[str, Any]]
    people: list[Person]

    def definitions(self) -> dict[str, Any]:
        """The body of ``/flags/definitions``, as far as SDKs read it."""
        by_id = {flag["id"]: flag for flag in self.flags}
        return {
            "flags": [sdk_form(flag, by_id) for flag in self.flags],
            "group_type_mapping": GROUP_TYPES,
            "cohorts": {str(cohort_id): tree for cohort_id, tree in COHORTS.items()},
        }


GROUP_TYPES = {"0": "company"}


def sample(seed: int, *, flags: int = 40, people: int = 40, savable: bool = False) -> Sample:
    """The project and the people of a seed. Dates are drawn around the present, far from every bound."""
    draw = Draw(seed, savable=savable)
    drawn: list[dict[str, Any]] = []
    for number in range(1, flags + 1):
        drawn.append(draw.flag(number, drawn))
    now = datetime.now(UTC)
    return Sample(drawn, [draw.person(seed, number, now) for number in range(people)])
