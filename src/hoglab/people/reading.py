"""Reading persons and groups: point reads for flags, lists for the API."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson
import sqlalchemy as sa
from sqlalchemy import bindparam

from hoglab.storage.database.person_search import person_search
from hoglab.storage.database.tables import group, group_type, person, person_distinct_id
from hoglab.storage.database.types import json_text

if TYPE_CHECKING:
    from sqlalchemy import BindParameter, Connection

DEFAULT_DISPLAY_NAMES = ("email", "name", "username")
"""Properties that name a person when the project does not say which (spec: hog-runtime 1.1)."""
SHOWN_DISTINCT_IDS = 100
"""Maximum number of distinct ids of one person in a list; a person read alone has all."""

MAX_COUNTED = 10_000
"""Maximum number of persons of a list that are counted exactly."""
MAX_FOUND = 2_000
"""Maximum number of candidates of a search; more are not needed, as the first are soon found without the index."""

MAX_TESTED = 50_000
"""Maximum number of persons of one list to whom filters of properties are applied."""

EXPORT_PAGE = 1_000
"""Number of persons that `every_person`, and a list with a test, read at once."""


class TooManyPersonsError(Exception):
    """A list would have to look at more persons than `MAX_TESTED`."""


@dataclass(frozen=True, slots=True)
class PersonView:
    """One person as readers see it. ``row_id`` is the key of cohort membership and flag overrides."""

    row_id: int
    uuid: UUID
    properties: dict[str, Any]
    is_identified: bool
    created_at: datetime
    last_seen_at: datetime | None


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group as readers see it."""

    group_type_index: int
    group_key: str
    properties: dict[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class GroupTypeView:
    """One group type as readers see it."""

    group_type: str
    group_type_index: int
    created_at: datetime


_COLUMNS = (
    person.c.id,
    person.c.uuid,
    person.c.properties,
    person.c.is_identified,
    person.c.created_at,
    person.c.last_seen_at,
)
_PERSON_FOR = (
    sa.select(*_COLUMNS)
    .join_from(person_distinct_id, person, person.c.id == person_distinct_id.c.person_id)
    .where(
        person_distinct_id.c.project_id == bindparam("project_id"),
        person_distinct_id.c.distinct_id == bindparam("distinct_id"),
    )
)
_GROUP_PROPERTIES = sa.select(group.c.properties).where(
    group.c.project_id == bindparam("project_id"),
    group.c.group_type_index == bindparam("group_index"),
    group.c.group_key == bindparam("group_key"),
)


def person_for(connection: Connection, project_id: int, distinct_id: str) -> PersonView | None:
    """Return the person behind a distinct id."""
    row = connection.execute(_PERSON_FOR, {"project_id": project_id, "distinct_id": distinct_id}).first()
    return None if row is None else _view(row)


def persons_for(
    connection: Connection, project_id: int, distinct_ids: Collection[str]
) -> dict[str, PersonView]:
    """Return the persons behind some distinct ids; those without one are left out."""
    rows = connection.execute(
        sa.select(person_distinct_id.c.distinct_id, *_COLUMNS)
        .join_from(person_distinct_id, person, person.c.id == person_distinct_id.c.person_id)
        .where(
            person_distinct_id.c.project_id == project_id,
            person_distinct_id.c.distinct_id.in_(list(distinct_ids)),
        )
    )
    return {row[0]: _view(row[1:]) for row in rows}


def _view(row: Any) -> PersonView:
    row_id, uuid, properties, is_identified, created_at, last_seen_at = row
    return PersonView(row_id, UUID(uuid), properties, is_identified, created_at, last_seen_at)


def group_properties(connection: Connection, project_id: int, index: int, key: str) -> dict[str, Any] | None:
    """Return the properties of a group."""
    row = connection.execute(
        _GROUP_PROPERTIES, {"project_id": project_id, "group_index": index, "group_key": key}
    ).first()
    return None if row is None else row[0]


def groups_of_type(
    connection: Connection, project_id: int, index: int, limit: int
) -> list[tuple[str, dict[str, Any]]]:
    """Return the keys and properties of groups of a type, in order, up to a limit."""
    mine = (group.c.project_id == project_id, group.c.group_type_index == index)
    statement = sa.select(group.c.group_key, group.c.properties).where(*mine).order_by(group.c.group_key)
    return [(key, properties) for key, properties in connection.execute(statement.limit(limit))]


def person_by_uuid(connection: Connection, project_id: int, uuid: str) -> PersonView | None:
    """Return the person with a uuid (canonical text)."""
    row = connection.execute(
        sa.select(*_COLUMNS).where(person.c.project_id == project_id, person.c.uuid == uuid)
    ).first()
    return None if row is None else _view(row)


@dataclass(frozen=True, slots=True)
class PersonFilter:
    """Conditions of a list of persons; all hold."""

    distinct_id: str | None = None
    email: str | None = None
    """The whole of that property, ignoring case."""
    search: str | None = None
    """A part of the email, the name or a distinct id, ignoring case."""
    among: sa.Select[tuple[int]] | None = None
    """The row ids to choose from."""
    test: Callable[[PersonView], bool] | None = None
    """Function that is asked about each person that is left."""


def list_persons(
    connection: Connection,
    project_id: int,
    wanted: PersonFilter,
    *,
    limit: int,
    offset: int,
) -> tuple[list[PersonView], int]:
    """Return persons, youngest first, and how many there are on all pages.

    The count is exact up to `MAX_COUNTED`, and at least as large as a further page needs. Raises `TooManyPersonsError`
    where a test would be asked about more than `MAX_TESTED` persons.
    """
    matching: sa.Select[Any] = sa.select(*_COLUMNS)
    maybe = [
        condition
        for text in (wanted.email, wanted.search)
        if text and (condition := _maybe(connection, text)) is not None
    ]
    if maybe:
        # Given the column as it is, the engine walks along all persons of the project rather than look these up.
        matching = matching.where(person.c.project_id + 0 == project_id, *maybe)
    else:
        matching = matching.where(person.c.project_id == project_id)
    if wanted.among is not None:
        matching = matching.where(person.c.id.in_(wanted.among))
    ids = person_distinct_id
    if wanted.distinct_id is not None:
        person_of_id = sa.select(ids.c.person_id).where(
            ids.c.project_id == project_id, ids.c.distinct_id == wanted.distinct_id
        )
        matching = matching.where(person.c.id == person_of_id.scalar_subquery())
    if wanted.email:
        email = sa.func.lower(json_text(person.c.properties, "email"))
        matching = matching.where(email == wanted.email.lower())
    if wanted.search:
        search = wanted.search
        named = sa.select(ids.c.person_id).where(
            ids.c.person_id == person.c.id, ids.c.distinct_id.icontains(search, autoescape=True)
        )
        matching = matching.where(
            sa.or_(
                json_text(person.c.properties, "email").icontains(search, autoescape=True),
                json_text(person.c.properties, "name").icontains(search, autoescape=True),
                named.exists(),
            )
        )
    if wanted.test is not None:
        return _tested(connection, matching, wanted.test, limit=limit, offset=offset)
    counted = matching.with_only_columns(sa.literal(1)).limit(max(MAX_COUNTED, offset + limit + 1))
    count = connection.execute(sa.select(sa.func.count()).select_from(counted.subquery())).scalar_one()
    rows = connection.execute(
        matching.order_by(person.c.created_at.desc(), person.c.id.desc()).limit(limit).offset(offset)
    )
    return [_view(row) for row in rows], count


def _tested(
    connection: Connection,
    matching: sa.Select[Any],
    test: Callable[[PersonView], bool],
    *,
    limit: int,
    offset: int,
) -> tuple[list[PersonView], int]:
    """Return the page of persons who pass a test, and how many pass it; persons are read page by page."""
    newest_first = matching.order_by(person.c.created_at.desc(), person.c.id.desc()).limit(MAX_TESTED + 1)
    page: list[PersonView] = []
    count = 0
    rows = connection.execution_options(yield_per=EXPORT_PAGE).execute(newest_first)
    for number, row in enumerate(rows):
        if number == MAX_TESTED:
            raise TooManyPersonsError
        view = _view(row)
        if test(view):
            count += 1
            if offset < count <= offset + limit:
                page.append(view)
    return page, count


def _maybe(connection: Connection, text: str) -> sa.ColumnElement[bool] | None:
    """Return the condition for persons who may hold a text, by the index; None when the index names too many."""
    matches = person_search(connection).find(connection, text, MAX_FOUND)
    if matches is None:
        return None
    row_ids, done = matches
    meant = person.c.id.in_(row_ids or [-1])  # of nothing at all no index is used
    return meant if done is None else sa.or_(meant, person.c.id > done)


def distinct_ids_of(
    connection: Connection, row_ids: Sequence[int], *, per_person: int | None = SHOWN_DISTINCT_IDS
) -> dict[int, list[str]]:
    """Return the distinct ids of persons by row id in alphabetical order, at most ``per_person`` each (None: all)."""
    ids = person_distinct_id
    rank = sa.func.row_number().over(partition_by=ids.c.person_id, order_by=ids.c.distinct_id).label("rank")
    ranked = (
        sa.select(ids.c.person_id, ids.c.distinct_id, rank).where(ids.c.person_id.in_(row_ids)).subquery()
    )
    chosen = sa.select(ranked.c.person_id, ranked.c.distinct_id).order_by(ranked.c.person_id, ranked.c.rank)
    if per_person is not None:
        chosen = chosen.where(ranked.c.rank <= per_person)
    by_person: dict[int, list[str]] = {row_id: [] for row_id in row_ids}
    for row_id, distinct_id in connection.execute(chosen):
        by_person[row_id].append(distinct_id)
    return by_person


def distinct_id_counts(connection: Connection, row_ids: Sequence[int]) -> dict[int, int]:
    """Return the numbers of distinct ids of persons, by row id."""
    ids = person_distinct_id
    counted = sa.select(ids.c.person_id, sa.func.count()).where(ids.c.person_id.in_(row_ids))
    rows = connection.execute(counted.group_by(ids.c.person_id))
    return {row.person_id: row[1] for row in rows}


def next_persons(
    *columns: sa.ColumnElement[Any],
    project_id: int | BindParameter[int],
    after: int | BindParameter[int],
    limit: int,
) -> sa.Select[Any]:
    """Select the next persons of a project by row id: pages of a walk along the table."""
    # Given the column as it is, the engine takes its index and sorts all persons of the project for every page.
    within = person.c.project_id + 0 == project_id
    return sa.select(*columns).where(within, person.c.id > after).order_by(person.c.id).limit(limit)


def every_person(connection: Connection, project_id: int) -> Iterator[tuple[PersonView, list[str]]]:
    """Yield all persons in the order of their creation, with all their distinct ids; read page by page."""
    last = 0
    while True:
        page = connection.execute(
            next_persons(*_COLUMNS, project_id=project_id, after=last, limit=EXPORT_PAGE)
        ).all()
        if not page:
            return
        views = [_view(row) for row in page]
        ids = distinct_ids_of(connection, [view.row_id for view in views], per_person=None)
        for view in views:
            yield view, ids[view.row_id]
        last = views[-1].row_id


def list_groups(
    connection: Connection,
    project_id: int,
    group_type_index: int,
    *,
    search: str | None = None,
    limit: int,
    offset: int,
) -> tuple[list[GroupView], int]:
    """Return groups of a type, youngest first, and how many there are. ``search``: a part of key or name."""
    matching = sa.select(
        group.c.group_type_index, group.c.group_key, group.c.properties, group.c.created_at
    ).where(group.c.project_id == project_id, group.c.group_type_index == group_type_index)
    if search:
        name = json_text(group.c.properties, "name")
        matching = matching.where(
            sa.or_(
                group.c.group_key.icontains(search, autoescape=True), name.icontains(search, autoescape=True)
            )
        )
    count = connection.execute(sa.select(sa.func.count()).select_from(matching.subquery())).scalar_one()
    rows = connection.execute(
        matching.order_by(group.c.created_at.desc(), group.c.group_key).limit(limit).offset(offset)
    )
    return [GroupView(*row) for row in rows], count


def list_group_types(connection: Connection, project_id: int) -> list[GroupTypeView]:
    """Return the group types of a project by index."""
    rows = connection.execute(
        sa.select(group_type.c.group_type, group_type.c.group_type_index, group_type.c.created_at)
        .where(group_type.c.project_id == project_id)
        .order_by(group_type.c.group_type_index)
    )
    return [GroupTypeView(*row) for row in rows]


def display_name(properties: dict[str, Any], distinct_id: str, names: Sequence[str] | None) -> str:
    """Return the display name of a person: the first of the named properties with a text, else the distinct id.

    Spec: hog-runtime 1.1.
    """
    for name in names or DEFAULT_DISPLAY_NAMES:
        value = properties.get(name)
        if value:
            text = value if isinstance(value, str) else orjson.dumps(value).decode()
            if text.strip():
                return text.strip()
    return distinct_id.strip()
