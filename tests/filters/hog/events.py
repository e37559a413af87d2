"""Filter globals for tests."""

from __future__ import annotations

from typing import Any

from hoglab.filters.elements import chain_elements, chain_href, chain_ids, chain_texts


def filter_globals(
    event: str = "e",
    properties: dict[str, Any] | None = None,
    person: dict[str, Any] | None = None,
    chain: str = "",
    **more: Any,
) -> dict[str, Any]:
    """Every root of spec hog-runtime 1.2. ``person`` are the person's properties, None for no person."""
    whole = None if person is None else {"id": "p1", "properties": person}
    return {
        "event": event,
        "uuid": "01990000-0000-7000-8000-000000000001",
        "distinct_id": "u1",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "properties": properties or {},
        "elements_chain": chain,
        "elements_chain_href": chain_href(chain),
        "elements_chain_texts": chain_texts(chain),
        "elements_chain_ids": chain_ids(chain),
        "elements_chain_elements": chain_elements(chain),
        "person": whole,
        "pdi": None if whole is None else {"distinct_id": "u1", "person_id": "p1", "person": whole},
        **{f"$group_{index}": None for index in range(5)},
        **{f"group_{index}": {"properties": {}} for index in range(5)},
        "variables": {},
        **more,
    }


DEAR_OR_RETURNED: dict[str, Any] = {
    "events": [
        {
            "id": "purchase",
            "type": "events",
            "properties": [{"key": "amount", "type": "event", "operator": "gt", "value": "100"}],
        },
        {"id": "refund", "type": "events"},
    ],
    "properties": [{"key": "plan", "type": "person", "operator": "is_not", "value": "free"}],
    "filter_test_accounts": True,
}
