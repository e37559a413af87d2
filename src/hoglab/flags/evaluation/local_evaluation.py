"""Flag definitions for SDKs that evaluate on their own (spec: sdk-wire 4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import orjson

from hoglab.filters.model import FilterError, PropertyFilter, PropertyGroup, parse_group
from hoglab.flags.payloads import REDACTED_PAYLOAD
from hoglab.people.cohorts.definition import cohort_reference

if TYPE_CHECKING:
    from hoglab.flags.matching.registry import LoadedProject
    from hoglab.flags.matching.snapshot import ProjectFlags
    from hoglab.flags.store import FlagRow

PROPERTY_MATCHING_VERSION = 1
MAX_EXPANDED_CONDITIONS = 20
"""Maximum number of condition sets that a cohort is expanded to. The server evaluates a flag that needs more."""


@dataclass(frozen=True, slots=True)
class Definitions:
    """An encoded answer and its entity tag."""

    body: bytes
    etag: bytes


def definitions(loaded: LoadedProject, *, with_cohorts: bool) -> Definitions:
    """Return the definitions of a project, made once for each state of its flags."""
    name = f"definitions {with_cohorts}"
    known = loaded.notes.get(name)
    if not isinstance(known, Definitions):
        body = orjson.dumps(_document(loaded, with_cohorts=with_cohorts), option=orjson.OPT_SORT_KEYS)
        known = Definitions(body, b'W/"' + sha256(body).hexdigest()[:32].encode() + b'"')
        loaded.notes[name] = known
    return known


def etag_matches(header: str, etag: bytes) -> bool:
    """Return whether an ``If-None-Match`` header names the tag: weak, strong or bare, alone or in a list."""
    wanted = etag.decode().removeprefix("W/").strip('"')
    tags = (tag.strip() for tag in header.split(","))
    return any(tag == "*" or tag.removeprefix("W/").strip('"') == wanted for tag in tags)


def _document(loaded: LoadedProject, *, with_cohorts: bool) -> dict[str, Any]:
    flags = loaded.flags
    rows = [row for row in loaded.rows if not row.is_remote_configuration]
    trees = _cohort_trees(flags)
    shown = [_flag(row, loaded, {} if with_cohorts else trees) for row in rows]
    return {
        "flags": shown,
        "group_type_mapping": {str(index): name for index, name in flags.group_names.items()},
        "cohorts": _referenced(shown, trees) if with_cohorts else {},
        "property_matching_version": PROPERTY_MATCHING_VERSION,
        "minimal_flag_called_events": False,
    }


def _flag(row: FlagRow, loaded: LoadedProject, expandable: Mapping[int, Any]) -> dict[str, Any]:
    linked = loaded.linked.get(row.id, ())
    return {
        "id": row.id,
        "team_id": row.project_id,
        "name": row.name,
        "key": row.key,
        "active": row.active,
        "deleted": row.deleted,
        "version": row.version,
        "ensure_experience_continuity": bool(row.ensure_experience_continuity),
        "has_encrypted_payloads": bool(row.has_encrypted_payloads),
        "evaluation_runtime": row.evaluation_runtime or "all",
        "evaluation_contexts": row.evaluation_contexts,
        "evaluation_tags": row.evaluation_contexts,
        "bucketing_identifier": row.bucketing_identifier,
        "has_experiment": any(not experiment.deleted for experiment in linked),
        "filters": _filters(row, loaded.flags, expandable),
    }


def _filters(row: FlagRow, flags: ProjectFlags, expandable: Mapping[int, Any]) -> dict[str, Any]:
    filters: dict[str, Any] = {
        "aggregation_group_type_index": None,
        "holdout": None,
        "early_exit": False,
        **row.filters,
    }
    conditions = [
        {**condition, "properties": [_property(leaf, flags) for leaf in condition.get("properties") or ()]}
        for condition in _objects(row.filters.get("groups"))
    ]
    filters["groups"] = _expanded(conditions, expandable)
    payloads = row.filters.get("payloads")
    if row.has_encrypted_payloads and isinstance(payloads, dict):
        filters["payloads"] = dict.fromkeys(payloads, REDACTED_PAYLOAD)
    return filters


def _property(raw: Any, flags: ProjectFlags) -> Any:
    """Return a filter as SDKs know it: a dependency by key, with the flags to evaluate before it."""
    if not isinstance(raw, dict) or raw.get("type") != "flag":
        return raw
    flag_id = flags.resolve(str(raw.get("key")))
    if flag_id is None:
        return raw
    chain = [flags.flags[dependency_id].key for dependency_id in flags.dependency_chain(flag_id)]
    return {**raw, "key": flags.flags[flag_id].key, "dependency_chain": chain}


def _cohort_trees(flags: ProjectFlags) -> dict[int, Any]:
    """Return property trees of the cohorts that SDKs can evaluate: dynamic, sound and about person properties."""
    trees = {}
    for cohort in flags.data.cohorts.values():
        if cohort.is_static:
            continue
        tree = cohort.tree or {}
        try:
            leaves = list(parse_group(tree, default_type="person").leaves())
        except FilterError:
            continue
        if all(leaf.type == "person" or leaf.is_cohort for leaf in leaves):
            trees[cohort.id] = tree
    return trees


def _referenced(shown: Iterable[Mapping[str, Any]], trees: Mapping[int, Any]) -> dict[str, Any]:
    """Return the cohorts that flags name, and those that these name in turn."""
    open_ids = [
        cohort_id
        for flag in shown
        for condition in flag["filters"]["groups"]
        for raw in condition["properties"]
        if (cohort_id := _cohort_id(raw)) is not None
    ]
    referenced: dict[str, Any] = {}
    while open_ids:
        cohort_id = open_ids.pop()
        if cohort_id not in trees or str(cohort_id) in referenced:
            continue
        referenced[str(cohort_id)] = trees[cohort_id]
        leaves = parse_group(trees[cohort_id], default_type="person").leaves()
        open_ids += [
            other for leaf in leaves if leaf.is_cohort and (other := cohort_reference(leaf)) is not None
        ]
    return referenced


def _cohort_id(raw: Any) -> int | None:
    if not isinstance(raw, dict) or raw.get("type") != "cohort":
        return None
    return cohort_reference(PropertyFilter("id", "cohort", "in", raw.get("value")))


def _expanded(conditions: list[dict[str, Any]], trees: Mapping[int, Any]) -> list[dict[str, Any]]:
    """Return conditions with the one cohort of a flag expanded, for clients that were not sent cohorts.

    Only when the flag has exactly one cohort filter and that cohort is plain: alternatives of person filters
    without negation and without further cohorts. Any other flag is left for the server.
    """
    cohort_filters = [
        raw for condition in conditions for raw in condition["properties"] if _cohort_id(raw) is not None
    ]
    if len(cohort_filters) != 1 or cohort_filters[0].get("operator", "in") not in ("in", "exact"):
        return conditions
    cohort_filter = cohort_filters[0]
    branches = _alternatives(trees.get(_cohort_id(cohort_filter) or 0))
    if branches is None or cohort_filter.get("negation"):
        return conditions
    expanded = []
    for condition in conditions:
        if not any(raw is cohort_filter for raw in condition["properties"]):
            expanded.append(condition)
            continue
        others = [raw for raw in condition["properties"] if raw is not cohort_filter]
        expanded += [{**condition, "properties": [*others, *branch]} for branch in branches]
    return expanded


def _alternatives(tree: Any) -> list[list[dict[str, Any]]] | None:
    """Return a tree as lists of filters of which one must match as a whole; None when it is not that simple."""
    if not tree:
        return None
    branches = _branches(parse_group(tree, default_type="person"))
    if branches is None or not 0 < len(branches) <= MAX_EXPANDED_CONDITIONS:
        return None
    if any(leaf.negation or leaf.is_cohort for branch in branches for leaf in branch):
        return None
    return [[_raw(leaf) for leaf in branch] for branch in branches]


def _branches(group: PropertyGroup) -> list[list[PropertyFilter]] | None:
    parts = [_branches(value) if isinstance(value, PropertyGroup) else [[value]] for value in group.values]
    if group.type == "OR" and parts:
        return None if None in parts else [branch for part in parts for branch in part or ()]
    joined: list[PropertyFilter] = []
    for part in parts:
        if part is None or len(part) != 1:
            return part if len(parts) == 1 else None
        joined += part[0]
    return [joined]


def _raw(leaf: PropertyFilter) -> dict[str, Any]:
    return {**leaf.extra, "key": leaf.key, "type": leaf.type, "operator": leaf.operator, "value": leaf.value}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
