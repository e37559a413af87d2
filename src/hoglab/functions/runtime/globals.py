"""Globals of filters, made from an event (spec: hog-runtime 1.2, 1.3)."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from hoglab.filters.elements import chain_elements, chain_href, chain_ids, chain_texts
from hoglab.filters.hog.environment import ELEMENT_ROOTS, GROUP_ROOTS, PERSON_ROOTS
from hoglab.filters.model import GROUP_TYPES

# Shared by all events: filters only read.
_NO_GROUPS: dict[str, Any] = {
    **{f"$group_{index}": None for index in range(GROUP_TYPES)},
    **{f"group_{index}": {"properties": {}} for index in range(GROUP_TYPES)},
}
_NO_VARIABLES: dict[str, Any] = {}


def filter_globals(globals_: Mapping[str, Any], reads: Set[str] | None = None) -> dict[str, Any]:
    """Return the flat globals of filters, from the globals of programs (spec: hog-runtime 1.1).

    ``reads`` are the only roots that the filters look at; other globals that take time to derive are left out.
    """
    event = globals_["event"]
    properties = event.get("properties") or {}
    flat: dict[str, Any] = {
        "event": event["event"],
        "uuid": event.get("uuid"),
        "distinct_id": event["distinct_id"],
        "timestamp": event.get("timestamp"),
        "properties": properties,
        "variables": _NO_VARIABLES,
    }
    if reads is None or not reads.isdisjoint(ELEMENT_ROOTS):
        flat.update(_elements(event.get("elements_chain") or properties.get("$elements_chain") or ""))
    if reads is None or not reads.isdisjoint(PERSON_ROOTS):
        flat.update(_person(globals_.get("person"), event["distinct_id"]))
    if reads is None or not reads.isdisjoint(GROUP_ROOTS):
        flat.update(_groups(globals_.get("groups") or {}))
    return flat


def _elements(chain: Any) -> dict[str, Any]:
    if not isinstance(chain, str):
        chain = ""
    return {
        "elements_chain": chain,
        "elements_chain_href": chain_href(chain) if chain else "",
        "elements_chain_texts": chain_texts(chain) if chain else [],
        "elements_chain_ids": chain_ids(chain) if chain else [],
        "elements_chain_elements": chain_elements(chain) if chain else [],
    }


def _person(person: Mapping[str, Any] | None, distinct_id: str) -> dict[str, Any]:
    if person is None:
        return {"person": None, "pdi": None}
    shown = {"id": person["id"], "properties": person["properties"]}
    return {
        "person": shown,
        "pdi": {"distinct_id": distinct_id, "person_id": shown["id"], "person": shown},
    }


def _groups(groups: Mapping[Any, Mapping[str, Any]]) -> dict[str, Any]:
    flat = dict(_NO_GROUPS)
    for group in groups.values():
        index = group.get("index")
        if isinstance(index, int) and 0 <= index < GROUP_TYPES:
            flat[f"$group_{index}"] = group["id"]
            flat[f"group_{index}"] = {"properties": group.get("properties") or {}}
    return flat
