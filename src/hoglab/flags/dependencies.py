"""Flags that depend on other flags: what is accepted on saving (spec: sdk-wire 3.10)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hoglab.flags.validation import filters_error

if TYPE_CHECKING:
    from hoglab.flags.store import FlagRow


def check_dependencies(
    filters: dict[str, Any],
    flag_id: int | None,
    key: str,
    others: Callable[[], Iterable[FlagRow]],
    stored: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the filters of a flag with every dependency by the id of its flag.

    ``others`` reads the flags of the project that are not deleted; ``flag_id`` is None for a new flag. A dependency
    that the ``stored`` filters have already may name a flag that is gone. Raises 400 for unknown flags, and for
    dependencies that lead back to the flag.
    """
    if not any(True for _ in _dependencies(filters)):
        return filters
    rows = {row.id: row for row in others() if row.id != flag_id}
    ids = {row.key: row.id for row in rows.values()}
    gone = {leaf["key"] for _, leaf in _dependencies(stored or {})}
    for path, leaf in _dependencies(filters):
        name = leaf["key"]
        if name in {str(flag_id), key}:
            raise filters_error(f"{path}: Feature flag '{key}' cannot depend on itself.")
        if not (name.isdecimal() and int(name) in rows) and name not in ids and name not in gone:
            raise filters_error(f"{path}: Feature flag '{name[:100]}' does not exist.")
        leaf["key"] = str(ids.get(name, name))
    circle = _circle(filters, flag_id, rows)
    if circle:
        names = " -> ".join([key, *(rows[row_id].key for row_id in circle), key])
        raise filters_error(f"Feature flags cannot depend on each other in a circle: {names}.")
    return filters


def _dependencies(filters: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every dependency with its path."""
    for index, group in enumerate(filters.get("groups") or ()):
        for place, leaf in enumerate(group.get("properties") or ()):
            if leaf.get("type") == "flag":
                yield f"groups[{index}].properties[{place}]", leaf


def _circle(filters: Mapping[str, Any], flag_id: int | None, rows: Mapping[int, FlagRow]) -> list[int]:
    """Return the flags on a path from the dependencies of a flag back to it; none when there is no such path."""
    came_from: dict[int, int | None] = {}
    waiting: list[tuple[int, int | None]] = [(other, None) for other in _ids(filters)]
    while waiting:
        current, before = waiting.pop()
        if current in came_from or current not in rows:
            continue
        came_from[current] = before
        for other in _ids(rows[current].filters):
            if other == flag_id:
                return _way(current, came_from)
            waiting.append((other, current))
    return []


def _way(end: int, came_from: Mapping[int, int | None]) -> list[int]:
    way: list[int] = []
    current: int | None = end
    while current is not None:
        way.append(current)
        current = came_from[current]
    return way[::-1]


def _ids(filters: Mapping[str, Any]) -> list[int]:
    return [int(leaf["key"]) for _, leaf in _dependencies(filters) if str(leaf.get("key")).isdecimal()]
