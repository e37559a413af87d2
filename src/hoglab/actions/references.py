"""Actions and cohorts that definitions name by their ids: metrics, exposure criteria, filters of flags and functions.

An id of another project, or of a deleted object, is refused when the definition is saved. An id that a stored
definition names already may be gone by now: it is not checked again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hoglab.actions import store
from hoglab.http.errors import ApiError, validation_error
from hoglab.http.fields.fields import parse_integer
from hoglab.http.fields.unknown_keys import Path, attr_of
from hoglab.people import cohorts

if TYPE_CHECKING:
    from sqlalchemy import Connection

Kind = Literal["action", "cohort"]

Definitions = Callable[["Connection", int], Iterable[tuple[str, object]]]
"""Function that yields definitions of a project that are in use: their names in words, and their JSON."""

Dependents = Callable[["Connection", int, int], Collection[str]]
"""Function that names the definitions of a project that would break without an action or a cohort."""

SHOWN_CHARACTERS = 100
"""Maximum number of characters shown of an invalid id."""


@dataclass(frozen=True, slots=True)
class Reference:
    """An id in a definition.

    ``path`` leads to it; ``id`` is None where the value is not an id.
    """

    kind: Kind
    id: int | None
    path: Path
    sent: str

    def error(self) -> ApiError:
        """Return the 400: the project has no such action or cohort."""
        name, code = self.kind.capitalize(), "does_not_exist"
        if self.kind == "cohort":
            code = "cohort_does_not_exist"
        return validation_error(f"{name} with id {self.sent} does not exist", attr_of(self.path), code)


def references(definition: object, path: Path = ()) -> Iterator[Reference]:
    """Yield every action and cohort that JSON names: in filters, nodes, and entries of functions."""
    if isinstance(definition, Mapping):
        yield from _of_object(definition, path)
        for key, value in definition.items():
            yield from references(value, (*path, key))
    elif isinstance(definition, list):
        for index, value in enumerate(definition):
            yield from references(value, (*path, index))


def first_missing(
    named: Iterable[Reference],
    stored: Iterable[Reference],
    actions: Collection[int],
    cohort_ids: Collection[int],
) -> Reference | None:
    """Return the first of some references that neither exists nor is ``stored`` already."""
    known = {(reference.kind, reference.id) for reference in stored}
    for reference in named:
        there = actions if reference.kind == "action" else cohort_ids
        if reference.id not in there and (reference.kind, reference.id) not in known:
            return reference
    return None


def check_references(
    connection: Connection, project_id: int, definition: object, stored: object = None, path: Path = ()
) -> None:
    """Raise 400 when a definition names an action or a cohort that the project does not have."""
    named = list(references(definition, path))
    if not named:
        return
    action_ids = {
        reference.id for reference in named if reference.kind == "action" and reference.id is not None
    }
    cohort_ids = {
        reference.id for reference in named if reference.kind == "cohort" and reference.id is not None
    }
    missing = first_missing(
        named,
        references(stored),
        store.names(connection, project_id, action_ids).keys(),
        cohorts.existing(connection, project_id, cohort_ids) if cohort_ids else (),
    )
    if missing is not None:
        raise missing.error()


def dependents_of(kind: Kind, sources: Iterable[Definitions]) -> Dependents:
    """Return the function that names the definitions from ``sources`` that refer to an action or a cohort."""
    known = tuple(sources)

    def dependents(connection: Connection, project_id: int, object_id: int) -> list[str]:
        return [
            name
            for definitions in known
            for name, definition in definitions(connection, project_id)
            if any((named.kind, named.id) == (kind, object_id) for named in references(definition))
        ]

    return dependents


def no_dependents(_connection: Connection, _project_id: int, _object_id: int) -> Collection[str]:
    """Return no dependents, where nothing refers to actions."""
    return ()


def _of_object(value: Mapping[str, Any], path: Path) -> Iterator[Reference]:
    kind = value.get("type")
    if isinstance(kind, str) and kind.endswith("cohort") and "value" in value:
        listed = value["value"]
        for cohort in listed if isinstance(listed, list) else [listed]:
            yield _reference("cohort", cohort, (*path, "value"))
    is_node = value.get("kind") == "ActionsNode"
    is_entry = len(path) > 1 and path[-2] == "actions" and isinstance(path[-1], int)
    if "id" in value and (is_node or is_entry):
        yield _reference("action", value["id"], (*path, "id"))
    if kind == "behavioral" and value.get("event_type") == "actions":
        yield _reference("action", value.get("key"), (*path, "key"))


def _reference(kind: Kind, sent: object, path: Path) -> Reference:
    number = None if isinstance(sent, bool) else parse_integer(sent)
    in_range = number is not None and 0 <= number < 2**63
    return Reference(kind, number if in_range else None, path, str(sent)[:SHOWN_CHARACTERS])
