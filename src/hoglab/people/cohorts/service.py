"""The rules of cohorts (spec: experiments-api 7.4)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hoglab.accounts import activity
from hoglab.http.errors import not_found, required, validation_error
from hoglab.http.fields.dates import utc_now
from hoglab.http.fields.unknown_keys import refuse, within
from hoglab.people.cohorts import store
from hoglab.people.cohorts.calculation import recalculate_dependents
from hoglab.people.cohorts.definition import (
    RuleProblem,
    action_keys,
    check_filters,
    check_references,
    filters_error,
    has_conditions,
    is_id,
    read_trees,
    references,
)
from hoglab.people.cohorts.schemas import CohortPatch
from hoglab.people.cohorts.store import CohortRow
from hoglab.people.cohorts.upload import Members

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoglab.filters.model import PropertyFilter
    from hoglab.http.identity import Project, User
    from hoglab.storage.catching_up import CatchUp
    from hoglab.storage.database import Database, Transaction

MAX_COHORTS_PER_PROJECT = 2_000

SCOPE = "Cohort"
"""Scope of cohorts in the activity log."""

CohortUsers = Callable[["Connection", int, int], Collection[str]]
"""Function that names the users of a project's cohort, which would break without it: ``feature flag "beta"``."""

ActionsExist = Callable[["Connection", int, Collection[int]], Collection[int]]
"""Function that returns which of some actions a project has."""

_FIELDS = frozenset({"name", "description", "filters", "groups", "query", "is_static", "deleted"})
_LOGGED = ("name", "description", "filters", "is_static", "deleted")


def _nobody(_connection: Connection, _project_id: int, _cohort_id: int) -> Collection[str]:
    return ()


def _all_there(_connection: Connection, _project_id: int, wanted: Collection[int]) -> Collection[int]:
    """Return all actions as existing, where there are none to check."""
    return wanted


def _no_problem(_rule: PropertyFilter) -> None:
    """Accept every rule about behaviour, where none is calculated."""


class CohortService:
    """Cohorts of all projects. Broken rules are raised as 400 of the wire."""

    def __init__(
        self,
        database: Database,
        *,
        users: CohortUsers = _nobody,
        actions: ActionsExist = _all_there,
        rule_problem: RuleProblem = _no_problem,
        catch_up: CatchUp | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._database = database
        self._users = users
        self._actions = actions
        self._rule_problem = rule_problem
        self._catch_up = catch_up
        self._now = now

    def get(self, connection: Connection, project_id: int, cohort_id: int) -> CohortRow:
        """Return a cohort. Raises 404 for an unknown or deleted one."""
        row = store.cohort_by_id(connection, project_id, cohort_id)
        if row is None or row.deleted:
            raise not_found()
        return row

    # --- creating

    def create(
        self, project: Project, user: User | None, data: Mapping[str, Any], members: Members | None = None
    ) -> CohortRow:
        """Make a cohort. ``data`` holds wire fields by name; ``members`` are the members of a static cohort.

        A static cohort with filters gets the persons as members who match them now; they are found in the background.
        """
        refuse(within(CohortPatch, data))
        if members is not None:
            self._require_persons(project)
        with self._database.write() as tx:
            return self.create_in(tx, project, user, data, members)

    def create_in(
        self,
        tx: Transaction,
        project: Project,
        user: User | None,
        data: Mapping[str, Any],
        members: Members | None = None,
    ) -> CohortRow:
        """Make a cohort like `create`, inside a caller's transaction."""
        values = {name: value for name, value in data.items() if name in _FIELDS - {"deleted"}}
        is_static = bool(values.get("is_static"))
        if not values.get("name"):
            raise required("name")
        if members is not None and not is_static:
            raise validation_error("Only static cohorts take a list of persons.", "is_static")
        _check_old_forms(values)
        if store.count_cohorts(tx.connection, project.id) >= MAX_COHORTS_PER_PROJECT:
            raise validation_error(
                f"A project has at most {MAX_COHORTS_PER_PROJECT:,} cohorts. Delete some that are not used."
            )
        sent = values.get("filters")
        values["filters"] = (
            None
            if is_static and not has_conditions(sent)
            else self._checked(tx.connection, project.id, None, sent)
        )
        row = self._insert(tx, project, user, values)
        if is_static and (members is not None or not row.is_calculating):
            row = self._add(tx, row, members or Members())
        return row

    def create_static(
        self,
        tx: Transaction,
        project: Project,
        user: User | None,
        name: str,
        persons: Iterable[UUID | str],
        *,
        description: str = "",
    ) -> CohortRow:
        """Make a static cohort of persons (by uuid; unknown ones are left out) inside a caller's transaction."""
        values = {"name": name, "description": description, "is_static": True}
        return self.create_in(tx, project, user, values, Members.of(person_ids=persons))

    def _insert(
        self, tx: Transaction, project: Project, user: User | None, values: Mapping[str, Any]
    ) -> CohortRow:
        now = self._now()
        user_id = None if user is None else user.id
        is_static = bool(values.get("is_static"))
        row = store.insert_cohort(
            tx.connection,
            {
                "description": "",
                "groups": [],
                "filters": None,
                **values,
                "project_id": project.id,
                "is_static": is_static,
                "is_calculating": values.get("filters") is not None,
                "pending_version": 1,
                "created_by_id": user_id,
                "created_at": now,
            },
        )
        detail = {"name": row.name or "", "changes": []}
        activity.record(tx, project.id, user_id, "created", SCOPE, row.id, detail, now=now)
        tx.changed("cohorts", project.id)
        return row

    # --- changing

    def update(
        self, project: Project, user: User | None, cohort_id: int, changes: Mapping[str, Any]
    ) -> CohortRow:
        """Change fields of a cohort; a new definition is calculated in the background.

        A deleted cohort is reached only by ``deleted`` false (404 otherwise), which restores it. A cohort in use
        cannot be deleted, and a cohort stays static or dynamic for good.
        """
        values = {name: value for name, value in changes.items() if name in _FIELDS}
        with self._database.write() as tx:
            row = store.cohort_by_id(tx.connection, project.id, cohort_id)
            if row is None or (row.deleted and values.get("deleted", True)):
                raise not_found()
            return self._update(tx, row, user, values)

    def discard(self, tx: Transaction, project: Project, user: User | None, cohort_id: int) -> bool:
        """Delete a cohort inside a caller's transaction, unless something uses it. Return whether it is gone now."""
        row = store.cohort_by_id(tx.connection, project.id, cohort_id)
        if row is None or row.deleted:
            return True
        if self._used_by(tx.connection, row):
            return False
        self._update(tx, row, user, {"deleted": True})
        return True

    def _update(
        self, tx: Transaction, row: CohortRow, user: User | None, values: dict[str, Any]
    ) -> CohortRow:
        self._check_change(tx.connection, row, values)
        if not values:
            return row
        changed = store.update_cohort(tx.connection, row.id, values)
        if not changed.is_static and (changed.filters != row.filters or row.deleted):
            store.request_calculation(tx.connection, [row.id])
            recalculate_dependents(tx, row.project_id, [row.id])
            changed = self.get(tx.connection, row.project_id, row.id)
        self._record(tx, row, changed, user)
        tx.changed("cohorts", row.project_id)
        return changed

    def _check_change(self, connection: Connection, row: CohortRow, values: dict[str, Any]) -> None:
        _check_old_forms(values)
        if "name" in values and not values["name"]:
            raise validation_error("This field may not be blank.", "name", "blank")
        if values.get("is_static", row.is_static) != row.is_static:
            raise validation_error("A cohort cannot be turned from dynamic to static or back.", "is_static")
        if row.is_static:
            if has_conditions(values.get("filters")) and values["filters"] != row.filters:
                raise filters_error(
                    "The members of a static cohort were found by its filters once, so they stay."
                )
            values.pop("filters", None)
        elif "filters" in values:
            refuse(within(CohortPatch, values), within(CohortPatch, {"filters": row.filters}))
            values["filters"] = self._checked(connection, row.project_id, row.id, values["filters"])
        elif row.deleted:
            self._checked(connection, row.project_id, row.id, row.filters)
        if values.get("deleted") and not row.deleted:
            self._check_unused(connection, row)

    def _checked(
        self, connection: Connection, project_id: int, cohort_id: int | None, filters: Any
    ) -> dict[str, Any]:
        if filters is None:
            raise required("filters")
        checked = check_filters(filters, self._rule_problem)
        check_references(cohort_id, checked, store.definitions(connection, project_id))
        self._check_actions(connection, project_id, cohort_id, checked)
        return checked

    def _check_actions(
        self, connection: Connection, project_id: int, cohort_id: int | None, filters: Mapping[str, Any]
    ) -> None:
        """Raise 400 for an action that the project does not have, unless the cohort names it already."""
        stored = None if cohort_id is None else store.cohort_by_id(connection, project_id, cohort_id)
        known = action_keys((stored.filters or {}).get("properties") if stored is not None else None)
        named = action_keys(filters["properties"]) - known
        there = self._actions(connection, project_id, {int(key) for key in named if is_id(key)})
        for key in sorted(named):
            if not is_id(key) or int(key) not in there:
                raise filters_error(f"Action with id {key[:100]} does not exist", "does_not_exist")

    def _check_unused(self, connection: Connection, row: CohortRow) -> None:
        if used_by := self._used_by(connection, row):
            raise validation_error(
                f"This cohort cannot be deleted while it is in use by {', '.join(used_by)}."
            )

    def _used_by(self, connection: Connection, row: CohortRow) -> list[str]:
        """Return in words the users of the cohort, which would break without it."""
        trees, _ = read_trees(store.definitions(connection, row.project_id).values())
        used_by = [f"cohort {other}" for other, tree in trees.items() if row.id in references(tree)]
        return [*used_by, *self._users(connection, row.project_id, row.id)]

    def _record(self, tx: Transaction, before: CohortRow, after: CohortRow, user: User | None) -> None:
        old, new = asdict(before), asdict(after)
        changes = [
            activity.change(SCOPE, name, old[name], new[name]) for name in _LOGGED if old[name] != new[name]
        ]
        if not changes:
            return
        name = "updated"
        if before.deleted != after.deleted:
            name = "deleted" if after.deleted else "restored"
        detail = {"name": after.name or "", "changes": changes}
        user_id = None if user is None else user.id
        activity.record(tx, after.project_id, user_id, name, SCOPE, after.id, detail, now=self._now())

    # --- members of static cohorts

    def add(self, project: Project, cohort_id: int, members: Members) -> CohortRow:
        """Add persons to a static cohort; unknown persons and members change nothing."""
        self._require_persons(project)
        with self._database.write() as tx:
            return self._add(tx, self._static(tx.connection, project, cohort_id), members)

    def remove(self, project: Project, cohort_id: int, members: Members) -> CohortRow:
        """Remove persons from a static cohort."""
        with self._database.write() as tx:
            row = self._static(tx.connection, project, cohort_id)
            gone = self._rows(tx.connection, project.id, members)
            gone.intersection_update(store.member_rows(tx.connection, row.id))
            store.remove_members(tx.connection, row.id, gone)
            return self._recounted(tx, row, changed=bool(gone))

    def _require_persons(self, project: Project) -> None:
        """Wait until the persons of acknowledged events are known. Raises `NotCaughtUpError`."""
        if self._catch_up is not None:
            self._catch_up.require(project.id)

    def _static(self, connection: Connection, project: Project, cohort_id: int) -> CohortRow:
        row = self.get(connection, project.id, cohort_id)
        if not row.is_static:
            raise validation_error("The members of a dynamic cohort follow from its filters.")
        return row

    def _rows(self, connection: Connection, project_id: int, members: Members) -> set[int]:
        rows = set(store.rows_of_persons(connection, project_id, members.person_ids))
        rows.update(store.rows_of_distinct_ids(connection, project_id, members.distinct_ids))
        rows.update(store.rows_of_emails(connection, project_id, members.emails))
        return rows

    def _add(self, tx: Transaction, row: CohortRow, members: Members) -> CohortRow:
        wanted = self._rows(tx.connection, row.project_id, members)
        wanted.difference_update(store.member_rows(tx.connection, row.id))
        store.add_members(tx.connection, row.id, sorted(wanted))
        return self._recounted(tx, row, changed=bool(wanted) or row.version is None)

    def _recounted(self, tx: Transaction, row: CohortRow, *, changed: bool) -> CohortRow:
        """Store the new count of a cohort, and its new version if its members ``changed``."""
        version = (row.version or 0) + changed
        counted = store.update_cohort(
            tx.connection,
            row.id,
            {
                "count": store.count_members(tx.connection, row.id),
                "version": version,
                "pending_version": version,
                "last_calculation": self._now(),
            },
        )
        recalculate_dependents(tx, row.project_id, [row.id])
        tx.changed("cohorts", row.project_id)
        return counted


def _check_old_forms(values: Mapping[str, Any]) -> None:
    if values.get("groups"):
        raise validation_error("The old form of definitions is not supported; send filters.", "groups")
    if values.get("query") is not None:
        raise validation_error("Cohorts cannot be defined by a query; send filters.", "query")
