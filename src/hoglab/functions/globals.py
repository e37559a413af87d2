"""What filters see of an event (spec: hog-runtime 1.2, 1.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hoglab.filters.elements import chain_elements, chain_href, chain_ids, chain_texts

GROUP_TYPES = 5

_NO_GROUPS: dict[str, Any] = {f"$group_{index}": None for index in range(GROUP_TYPES)}


def filter_globals(globals_: Mapping[str, Any], *, elements: bool = True) -> dict[str, Any]:
    """The flat globals of filters, from the globals of programs (spec: hog-runtime 1.1).

    ``elements``: whether the fields derived from the chain of elements are wanted; they take longest.
    """
    event = globals_["event"]
    properties = event.get("properties") or {}
    chain = event.get("elements_chain") or properties.get("$elements_chain") or ""
    if not isinstance(chain, str):
        chain = ""
    person = globals_.get("person")
    shown = None if person is None else {"id": person["id"], "properties": person["properties"]}
    derived = elements and bool(chain)
    flat: dict[str, Any] = {
        "event": event["event"],
        "uuid": event["uuid"],
        "distinct_id": event["distinct_id"],
        "timestamp": event["timestamp"],
        "properties": properties,
        "elements_chain": chain,
        "elements_chain_href": chain_href(chain) if derived else "",
        "elements_chain_texts": chain_texts(chain) if derived else [],
        "elements_chain_ids": chain_ids(chain) if derived else [],
        "elements_chain_elements": chain_elements(chain) if derived else [],
        "person": shown,
        "pdi": None
        if shown is None
        else {"distinct_id": event["distinct_id"], "person_id": shown["id"], "person": shown},
        "variables": {},
        **_NO_GROUPS,
    }
    for index in range(GROUP_TYPES):
        flat[f"group_{index}"] = {"properties": {}}
    for group in (globals_.get("groups") or {}).values():
        index = group.get("index")
        if isinstance(index, int) and 0 <= index < GROUP_TYPES:
            flat[f"$group_{index}"] = group["id"]
            flat[f"group_{index}"] = {"properties": group.get("properties") or {}}
    return flat
