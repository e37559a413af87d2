"""``/cohorts`` of the management API (spec: experiments-api 7.4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hoglab.accounts import store as accounts
from hoglab.http.errors import not_found
from hoglab.http.fields.fields import parse_bool, parse_integer
from hoglab.http.fields.unknown_keys import warnings_of, with_warnings, within
from hoglab.http.fields.wire import user_object
from hoglab.http.management.pagination import Paged, envelope
from hoglab.http.management.routing import IntId, ResourceRouter
from hoglab.people import reading
from hoglab.people.cohorts import store
from hoglab.people.cohorts.schemas import (
    CalculationOut,
    CohortIn,
    CohortListQuery,
    CohortOut,
    CohortPatch,
    MembersIn,
)
from hoglab.people.cohorts.upload import Members, read_csv
from hoglab.people.routes import PersonList, person_objects

if TYPE_CHECKING:
    from hoglab.http.management.call import Call
    from hoglab.people.cohorts.calculation import CalculationProgress
    from hoglab.people.cohorts.service import CohortService
    from hoglab.people.cohorts.store import CohortRow
    from hoglab.storage.database import Database

READ, WRITE = "cohort:read", "cohort:write"


def cohorts_router(
    database: Database, service: CohortService, progress: Callable[[int], CalculationProgress | None]
) -> ResourceRouter:
    """Return the endpoints of cohorts.

    ``progress`` gives the progress of a calculation: `CohortCalculator.progress`.
    """
    routes = ResourceRouter("/cohorts", tag="cohorts", scopes=(READ, WRITE))

    def objects(rows: Sequence[CohortRow]) -> list[dict[str, Any]]:
        with database.read() as connection:
            users = accounts.users(connection, {row.created_by_id for row in rows})
            linked = store.exposure_experiments(connection, [row.id for row in rows])
            # Merges and deletions of persons take members out without a word to the cohort.
            counts = store.counts_of(connection, [row.id for row in rows if row.is_static])
        counted = [replace(row, count=counts.get(row.id, 0)) if row.is_static else row for row in rows]
        return [
            cohort_object(row, user_object(users.get(row.created_by_id or 0)), linked.get(row.id, ()))
            for row in counted
        ]

    def object_of(row: CohortRow) -> dict[str, Any]:
        return objects([row])[0]

    @routes.get("/", query=CohortListQuery, response=Paged[CohortOut])
    def list_cohorts(call: Call) -> dict[str, Any]:
        """List cohorts, newest first."""
        page = call.page()
        with database.read() as connection:
            rows, count = store.list_cohorts(
                connection,
                call.project.id,
                search=(call.query("search") or "").strip() or None,
                is_static=parse_bool(call.query("is_static")),
                created_by_id=parse_integer(call.query("created_by_id")),
                limit=page.limit,
                offset=page.offset,
            )
        return envelope(call, objects(rows), count, page)

    @routes.post("/", body=CohortIn, response=CohortOut, status=201)
    def create_cohort(call: Call) -> dict[str, Any]:
        """Create a cohort: by filters, or static with persons, distinct ids or a CSV file."""
        body = call.validate(CohortIn)
        return object_of(service.create(call.project, call.principal.user, body.sent(), _members(call, body)))

    @routes.get("/{cohort_id}", response=CohortOut)
    def read_cohort(call: Call, cohort_id: IntId) -> dict[str, Any]:
        """Read a cohort."""
        with database.read() as connection:
            row = service.get(connection, call.project.id, cohort_id)
        return object_of(row)

    @routes.get("/{cohort_id}/calculation", response=CalculationOut)
    def read_calculation(call: Call, cohort_id: IntId) -> dict[str, Any]:
        """Read the progress of the calculation of a cohort's members."""
        with database.read() as connection:
            row = service.get(connection, call.project.id, cohort_id)
        reached = progress(cohort_id) if row.is_calculating else None
        return {
            "is_calculating": row.is_calculating,
            "checked": None if reached is None else reached.checked,
            "persons": None if reached is None else reached.persons,
            "last_calculation": row.last_calculation,
            "errors_calculating": row.errors_calculating,
            "last_error_message": row.last_error_message,
            "count": row.count,
        }

    @routes.patch("/{cohort_id}", body=CohortPatch, response=CohortOut)
    def update_cohort(call: Call, cohort_id: IntId) -> dict[str, Any]:
        """Change the fields of a cohort that are sent. New filters are calculated in the background."""
        return _update(call, cohort_id, CohortPatch)

    @routes.put("/{cohort_id}", body=CohortIn, response=CohortOut)
    def replace_cohort(call: Call, cohort_id: IntId) -> dict[str, Any]:
        """Change a cohort; its name must be sent."""
        return _update(call, cohort_id, CohortIn)

    def _update(call: Call, cohort_id: int, model: type[CohortPatch]) -> dict[str, Any]:
        with database.read() as connection:
            row = store.cohort_by_id(connection, call.project.id, cohort_id)
        if row is None or (row.deleted and parse_bool(call.body.get("deleted")) is not False):
            raise not_found()
        changes = call.validate(model).sent()
        row = service.update(call.project, call.principal.user, cohort_id, changes)
        if call.decoded.files.get("csv") is not None:
            row = service.add(call.project, cohort_id, read_csv(call.decoded.files["csv"]))
        return object_of(row)

    routes.forbid_delete("/{cohort_id}")

    @routes.get("/{cohort_id}/persons", response=PersonList, scope=(READ, "person:read"))
    def list_members(call: Call, cohort_id: IntId) -> dict[str, Any]:
        """List the persons in a cohort as it was last calculated, youngest first."""
        page = call.page()
        with database.read() as connection:
            row = service.get(connection, call.project.id, cohort_id)
            persons, count = reading.list_persons(
                connection,
                call.project.id,
                reading.PersonFilter(among=store.members_query(row.id)),
                limit=page.limit,
                offset=page.offset,
            )
            shown = person_objects(call, connection, persons)
        return envelope(call, shown, count, page)

    @routes.patch("/{cohort_id}/add_persons_to_static_cohort", body=MembersIn, response=CohortOut)
    def add_members(call: Call, cohort_id: IntId) -> dict[str, Any]:
        """Add persons to a static cohort; unknown ones are left out."""
        body = call.validate(MembersIn)
        return object_of(service.add(call.project, cohort_id, Members(body.person_ids, body.distinct_ids)))

    @routes.patch("/{cohort_id}/remove_persons_from_static_cohort", body=MembersIn, response=CohortOut)
    def remove_members(call: Call, cohort_id: IntId) -> dict[str, Any]:
        """Remove persons from a static cohort."""
        body = call.validate(MembersIn)
        return object_of(service.remove(call.project, cohort_id, Members(body.person_ids, body.distinct_ids)))

    return routes


def cohort_object(
    row: CohortRow, created_by: dict[str, Any] | None, experiments: Sequence[int]
) -> dict[str, Any]:
    """Return a cohort in full."""
    shown = {
        "id": row.id,
        "name": row.name,
        "description": row.description,
        "groups": row.groups,
        "deleted": row.deleted,
        "filters": row.filters,
        "query": row.query,
        "is_calculating": row.is_calculating,
        "created_by": created_by,
        "created_at": row.created_at,
        "last_calculation": row.last_calculation,
        "errors_calculating": row.errors_calculating,
        "last_error_message": row.last_error_message,
        "count": row.count,
        "is_static": row.is_static,
        "cohort_type": None,
        "experiment_set": list(experiments),
        "version": row.version,
        "pending_version": row.pending_version,
    }
    return with_warnings(shown, warnings_of(within(CohortPatch, {"filters": row.filters})))


def _members(call: Call, body: CohortIn) -> Members | None:
    """Return the persons that a request to create a cohort names; None when it names none."""
    file = call.decoded.files.get("csv")
    if file is not None:
        return read_csv(file)
    if body.create_static_person_ids is None and body.create_static_distinct_ids is None:
        return None
    return Members(body.create_static_person_ids or [], body.create_static_distinct_ids or [])
