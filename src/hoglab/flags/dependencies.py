"""Flags that depend on other flags: what is accepted on saving (spec: sdk-wire 3.10).

No change makes an active flag depend on a flag that is deleted or newly disabled, or on a variant that a flag lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hoglab.flags.validation import filters_error, variant_keys
from hoglab.http.errors import validation_error

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
    that the ``stored`` filters have already may name a flag or a variant that is gone. Raises 400 for unknown flags
    and variants, and for dependencies that lead back to the flag.
    """
    if not any(True for _ in _dependencies(filters)):
        return filters
    rows = {row.id: row for row in others() if row.id != flag_id}
    ids = {row.key: row.id for row in rows.values()}
    known = [(leaf["key"], leaf.get("value")) for _, leaf in _dependencies(stored or {})]
    for path, leaf in _dependencies(filters):
        name = leaf["key"]
        if name in {str(flag_id), key}:
            raise filters_error(f"{path}: Feature flag '{key}' cannot depend on itself.")
        leaf["key"] = str(ids.get(name, name))
        if (leaf["key"], leaf["value"]) not in known:
            _check_met(path, leaf, rows)
    circle = _circle(filters, flag_id, rows)
    if circle:
        names = " -> ".join([key, *(rows[row_id].key for row_id in circle), key])
        raise filters_error(f"Feature flags cannot depend on each other in a circle: {names}.")
    return filters


def check_enabled(filters: Mapping[str, Any], others: Callable[[], Iterable[FlagRow]]) -> None:
    """Raise 400 for a flag to be enabled that depends on a flag or a variant that is gone.

    ``others`` reads the flags of the project that are not deleted.
    """
    dependencies = list(_dependencies(filters))
    if dependencies:
        rows = {row.id: row for row in others()}
        for path, leaf in dependencies:
            _check_met(path, leaf, rows)


def check_dependents(
    row: FlagRow, changed: Mapping[str, Any], others: Callable[[], Iterable[FlagRow]]
) -> None:
    """Raise 400 when a change takes away what active flags depend on, and name them.

    They depend on the flag, which is then neither deleted nor disabled, and on the variants that they name.
    ``changed`` are the new values of the flag ``row``; ``others`` reads the flags of the project that are not deleted.
    """
    deletes = bool(changed.get("deleted"))
    disables = row.active and not changed.get("active", True)
    removed = {*variant_keys(row.filters)} - {*variant_keys(changed.get("filters", row.filters))}
    if row.deleted or not (deletes or disables or removed):
        return
    dependents = [
        (other, leaf.get("value"))
        for other in others()
        if other.active and other.id != row.id
        for _, leaf in _dependencies(other.filters)
        if leaf.get("key") in {str(row.id), row.key}
    ]
    if deletes or disables:
        if dependents:
            action = "delete" if deletes else "disable"
            raise validation_error(
                f"Cannot {action} this feature flag because active feature flag(s) depend on it: "
                f"{_named(other for other, _ in dependents)}. Disable them or remove their dependency first."
            )
        return
    naming = [(other, value) for other, value in dependents if isinstance(value, str) and value in removed]
    if naming:
        variants = ", ".join(f"'{key}'" for key in sorted({value for _, value in naming}))
        raise validation_error(
            f"Cannot remove variant(s) {variants} because active feature flag(s) depend on them: "
            f"{_named(other for other, _ in naming)}. Disable them or remove their dependency first.",
            "filters",
        )


def _named(rows: Iterable[FlagRow]) -> str:
    return ", ".join(dict.fromkeys(f'"{row.key}" (ID: {row.id})' for row in rows))


def _check_met(path: str, leaf: Mapping[str, Any], rows: Mapping[int, FlagRow]) -> None:
    """Raise 400 unless the flag of a dependency exists and has the variant that the dependency names."""
    name, value = str(leaf["key"]), leaf.get("value")
    row = rows.get(int(name)) if name.isascii() and name.isdecimal() and len(name) < 19 else None
    if row is None:
        raise filters_error(f"{path}: Feature flag '{name[:100]}' does not exist.")
    if isinstance(value, str) and value not in variant_keys(row.filters):
        raise filters_error(f"{path}.value: Feature flag '{row.key}' has no variant '{value[:100]}'.")


def _dependencies(filters: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every dependency with its path."""
    for name in ("groups", "super_groups"):
        for index, group in enumerate(filters.get(name) or ()):
            for place, leaf in enumerate(group.get("properties") or ()):
                if leaf.get("type") == "flag":
                    yield f"{name}[{index}].properties[{place}]", leaf


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
