"""Which distinct ids may be merged, and derived person ids (spec: sdk-wire 1.11, 1.13)."""

from __future__ import annotations

from uuid import UUID, uuid5

import pytest

from hoglab.people.identity import can_merge, clean_distinct_id, derived_person_id


@pytest.mark.parametrize(
    "distinct_id",
    [
        "",
        " ",
        "\t\n",
        "anonymous",
        "ANONYMOUS",
        "Guest",
        "distinctid",
        "distinct_id",
        "id",
        "not_authenticated",
        "email",
        "undefined",
        "Undefined",
        "true",
        "FALSE",
        "[object Object]",
        "NaN",
        "None",
        "none",
        "null",
        "0",
        "'null'",
        '"null"',
        "'Anonymous'",
        '"[object Object]"',
        "''",
    ],
)
def test_illegal_ids(distinct_id: str) -> None:
    assert not can_merge(distinct_id)


@pytest.mark.parametrize(
    "distinct_id",
    ["u1", "NULL", "NONE", "nan", "00", "[object object]", "'null\"", "anonymous1", "'", "null'"],
)
def test_legal_ids(distinct_id: str) -> None:
    assert can_merge(distinct_id)


def test_derived_ids_follow_the_rule() -> None:
    expected = uuid5(UUID("932979b4-65c3-4424-8467-0b66ec27bc22"), "2:user-1")
    assert derived_person_id(2, "user-1") == expected
    assert derived_person_id(1, "user-1") != expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, ""), (False, ""), (True, "true"), (7, "7"), ("u" * 300, "u" * 200), ("a\0", "a\ufffd")],
)
def test_ids_in_properties_become_text(value: object, expected: str) -> None:
    assert clean_distinct_id(value) == expected
