"""The value of a flag for one subject, condition by condition: the checks and places of the evaluation, all of them.

`rules` stops at the first condition that decides. Here each check is made, by the same compiled code, so that people
see which property of which condition failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hoglab.filters.evaluate import MISSING
from hoglab.filters.model import parse_filters
from hoglab.flags.matching.checks import guarded
from hoglab.flags.matching.hashing import fraction_of, holdout_hash
from hoglab.flags.matching.outcome import FlagFailure
from hoglab.flags.matching.rules import holdout_identifier, place_in, skipped

if TYPE_CHECKING:
    from hoglab.filters.model import PropertyFilter
    from hoglab.flags.matching.definition import CompiledFlag, Condition
    from hoglab.flags.matching.subject import Subject


def conditions_of(flag: CompiledFlag, filters: Mapping[str, Any], subject: Subject) -> list[dict[str, Any]]:
    """Return what each condition of a flag says of a subject: its properties, and its rollout.

    ``filters`` are those that the flag was compiled from. Shares and buckets are in percent. Conditions of a flag that
    cannot be evaluated are left out.
    """
    raw = filters.get("groups") or []
    return [
        _condition(flag, condition, group, index, subject)
        for index, (condition, group) in enumerate(zip(flag.conditions, raw, strict=False))
    ]


def _condition(
    flag: CompiledFlag, condition: Condition, raw: Mapping[str, Any], index: int, subject: Subject
) -> dict[str, Any]:
    leaves: Sequence[PropertyFilter] = list(
        parse_filters(raw.get("properties"), default_type="person").leaves()
    )
    properties = [
        _property(leaf, check, condition, subject)
        for leaf, check in zip(leaves, condition.checks, strict=True)
    ]
    missing = skipped(flag, condition, subject)
    place = None if missing is not None else place_in(flag, condition, subject)
    share = raw.get("rollout_percentage")
    inside = place is not None and (condition.limit is None or place <= condition.limit)
    return {
        "index": index,
        "matches": inside and all(shown["matches"] for shown in properties),
        "skipped": None if missing is None else missing.reason.code,
        "properties": properties,
        "rollout": {
            "percentage": 100.0 if share is None else share,
            "bucket": None if place is None else fraction_of(place) * 100,
            "matches": inside,
        },
    }


def _property(leaf: PropertyFilter, check: Any, condition: Condition, subject: Subject) -> dict[str, Any]:
    try:
        matches, problem = guarded(check, subject), None
    except FlagFailure as failure:
        matches, problem = False, failure.detail
    return {
        "key": leaf.key,
        "type": leaf.type,
        "operator": leaf.operator,
        "value": leaf.value,
        "negation": leaf.negation,
        "actual": _actual(leaf, condition, subject),
        "matches": matches,
        "problem": problem,
    }


def _actual(leaf: PropertyFilter, condition: Condition, subject: Subject) -> Any:
    """Return the value that a check looked at; None for one that is not there, and for cohorts, which have none."""
    if leaf.is_cohort:
        return None
    if leaf.type == "flag":
        return subject.values.get(int(leaf.key)) if leaf.key.isdecimal() else None
    if leaf.type == "group":
        index = condition.aggregation if leaf.group_type_index is None else leaf.group_type_index
        value = MISSING if index is None else subject.group_property(index, leaf.key)
    elif leaf.type == "person_metadata":
        person = subject.person()
        value = MISSING if person is None or leaf.key != "created_at" else person.created_at.isoformat()
    else:
        value = subject.person_property(leaf.key)
    return None if value is MISSING else value


def variant_bucket(flag: CompiledFlag, index: int | None, subject: Subject) -> float | None:
    """Return the place of a subject among the variants, in percent, by the condition that decided or else the first.

    None for a flag without variants, and for a subject that the condition skips.
    """
    if not flag.variants or not flag.conditions:
        return None
    condition = flag.conditions[index or 0]
    if skipped(flag, condition, subject) is not None:
        return None
    return fraction_of(place_in(flag, condition, subject, b"variant")) * 100


def holdout_of(flag: CompiledFlag, subject: Subject) -> dict[str, Any] | None:
    """Return the holdout of a flag, with the bucket of a subject in percent; None for a flag without one."""
    if flag.holdout is None:
        return None
    identifier = holdout_identifier(flag, subject)
    bucket = None if identifier is None else holdout_hash(identifier) * 100
    share = flag.holdout.percentage
    return {
        "variant": flag.holdout.variant,
        "percentage": share,
        "bucket": bucket,
        "matches": bucket is not None and (share == 100 or bucket <= share),
    }
