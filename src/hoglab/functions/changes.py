"""Changes of a function by a save, for the activity log and for versions (spec: hog-functions-api 20.2, 22)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from hoglab.accounts import activity
from hoglab.functions.configuration.stored import SCOPE, live_config, secret_values

if TYPE_CHECKING:
    from hoglab.functions.configuration import Configuration

VERSIONED = frozenset(
    {"hog", "inputs_schema", "inputs", "encrypted_inputs", "filters", "masking", "mappings", "x_delivery"}
)
"""The fields that decide how a function behaves: a change of one of them makes a new version."""


def _watched(configuration: Configuration) -> dict[str, Any]:
    """Return the fields whose changes the activity log shows."""
    order = configuration.execution_order
    return {
        "name": configuration.name,
        "description": configuration.description,
        "enabled": configuration.enabled,
        "deleted": configuration.deleted,
        **live_config(configuration),
        "icon_url": configuration.icon_url,
        "_create_in_folder": configuration.create_in_folder,
        "priority": None if order is None else str(order),
    }


def changes_between(before: Configuration, after: Configuration) -> list[dict[str, Any]]:
    """Return the changes of a save, for the activity log: never bytecode, never a secret."""
    old, new = _watched(before), _watched(after)
    changes = [
        activity.change(SCOPE, name, old.get(name), new.get(name))
        for name in dict.fromkeys([*old, *new])
        if not _is_same(old.get(name), new.get(name))
    ]
    if not _is_same(secret_values(before), secret_values(after)):
        changes.append(activity.change(SCOPE, "encrypted_inputs", "masked", "masked"))
    return changes


def _is_same(before: Any, after: Any) -> bool:
    """Return whether two JSON values are the same; unlike with `==`, true is not 1 here."""
    return orjson.dumps(before, option=_SORTED) == orjson.dumps(after, option=_SORTED)


_SORTED = orjson.OPT_SORT_KEYS
