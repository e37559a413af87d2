"""Published hash vectors (spec: sdk-wire 3.14 A to E)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.flags.matching.hashing import (
    ORIGIN,
    fraction,
    highest_within,
    holdout_hash,
    lowest_beyond,
    place_of,
)
from hoglab.flags.matching.rules import evaluate
from hoglab.flags.matching.snapshot import FlagSelection
from hoglab.flags.matching.subject import FlagRequest, Subject

VECTORS = json.loads((Path(__file__).parent / "hash_vectors.json").read_text())


def variants_of(split: str) -> dict:
    shares = VECTORS["splits"][split]
    return {"variants": [{"key": key, "rollout_percentage": share} for key, share in shares]}


@pytest.mark.parametrize("row", VECTORS["hashes"], ids=lambda row: f"{row['key']}-{row['identifier']}")
def test_hashes(row):
    key, identifier = row["key"], row["identifier"]
    assert fraction(f"{key}.{identifier}".encode()) == row["value"]
    assert fraction(f"{key}.{identifier}variant".encode()) == row["variant_value"]
    assert hashlib.sha1(f"{key}.{identifier}".encode(), usedforsecurity=False).hexdigest()[:15] == row["hex"]


@pytest.mark.parametrize("row", VECTORS["holdouts"], ids=lambda row: row["identifier"])
def test_holdout_membership(row, value_of):
    assert holdout_hash(row["identifier"]) == row["value"]
    for share in (10, 50):
        filters = {"groups": [{}], "holdout": {"id": 7, "exclusion_percentage": share}}
        expected = "holdout-7" if row[f"in_{share}"] else True
        assert value_of("any", filters, row["identifier"]) == expected


@pytest.mark.parametrize("row", VECTORS["rollouts"], ids=lambda row: f"{row['key']}-{row['identifier']}")
def test_rollouts(row, value_of):
    for share, expected in row["rollouts"].items():
        filters = {"groups": [{"rollout_percentage": float(share)}]}
        assert value_of(row["key"], filters, row["identifier"]) is expected


@pytest.mark.parametrize("row", VECTORS["variants"], ids=lambda row: f"{row['key']}-{row['identifier']}")
def test_variants(row, value_of):
    assert fraction(f"{row['key']}.{row['identifier']}variant".encode()) == row["hash"]
    for split, expected in row["variants"].items():
        filters = {"groups": [{"rollout_percentage": 100}], "multivariate": variants_of(split)}
        assert value_of(row["key"], filters, row["identifier"]) == expected


@pytest.mark.parametrize(("identifier", "expected"), VECTORS["holdout_before_variants"].items())
def test_holdout_comes_before_variants(identifier, expected, value_of):
    filters = {
        "groups": [{"rollout_percentage": 100}],
        "multivariate": variants_of("S1"),
        "holdout": {"id": 42, "exclusion_percentage": 50},
    }
    assert value_of("checkout-experiment", filters, identifier) == expected


def test_distribution_over_a_hundred_thousand_people(world):
    world.flag("dist-flag", {"groups": [{"rollout_percentage": 50}], "multivariate": variants_of("S2")})
    project = world.project()
    stages = project.selection(FlagSelection())
    counts: Counter[bool | str] = Counter()
    held_out = 0
    for number in range(100_000):
        outcomes, _ = evaluate(stages, Subject(FlagRequest(f"user-{number}"), {}))
        counts[outcomes[0].value] += 1
        held_out += holdout_hash(f"user-{number}") <= 0.1
    expected = VECTORS["distribution"]
    assert held_out == expected["held_out"]
    assert counts == {
        False: expected["disabled"],
        "control": expected["control"],
        "test-1": expected["test-1"],
        "test-2": expected["test-2"],
    }


@given(st.text(max_size=30), st.text(max_size=30))
def test_fraction_is_the_first_fifteen_hex_digits_over_two_to_the_sixty(key, identifier):
    data = f"{key}.{identifier}".encode()
    assert fraction(data) == int(hashlib.sha1(data, usedforsecurity=False).hexdigest()[:15], 16) / float(
        0xFFFFFFFFFFFFFFF
    )
    assert 0 <= fraction(data) <= 1


BOUNDS = [-1.0, 0.0, 0.1, 0.3333, 0.5, 0.9999, 1.0, 1.5, float("nan"), float("inf")]


@pytest.mark.parametrize("bound", BOUNDS)
def test_places_compare_as_their_fractions_do(bound):
    for number in range(2_000):
        data = f"some-flag.user-{number}".encode()
        assert (place_of(data) <= highest_within(bound)) is (fraction(data) <= bound)
        assert (place_of(data) < lowest_beyond(bound)) is (fraction(data) < bound)
    assert (highest_within(bound) >= ORIGIN) is (bound >= 0.0)
    assert (lowest_beyond(bound) > ORIGIN) is (bound > 0.0)


@given(st.binary())
def test_places_compare_with_a_bound_that_they_meet(data):
    """The neighbours of a hash round to the same float64, so a bound may equal many of them."""
    bound = fraction(data)
    assert place_of(data) <= highest_within(bound)
    assert not place_of(data) < lowest_beyond(bound)
    assert highest_within(bound) >= lowest_beyond(bound)


@pytest.mark.parametrize(
    ("seed", "identifier", "rollout", "variant", "holdout"),
    [
        ("0198-seed", "user-1", 0.70128451691040594, 0.28526136667696034, 0.97651994029647304),
        ("0198-seed", "user-2", 0.4834786689146931, 0.27300684090405003, 0.96865999433801886),
        ("rule-seed-a", "alice@example.com", 0.86314339424146069, 0.74133515862368926, 0.98135641825659059),
    ],
)
def test_seeded_hashes(seed, identifier, rollout, variant, holdout):
    """Vectors F: flags of configuration version 2 are not kept here, but they hash in the same way."""
    assert fraction(f"{seed}.{identifier}".encode()) == rollout
    assert fraction(f"{seed}.{identifier}variant".encode()) == variant
    assert fraction(f"{seed}{identifier}".encode()) == holdout
