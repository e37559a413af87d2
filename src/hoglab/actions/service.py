"""The rules of actions (spec: hog-runtime 2.6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from hoglab.accounts import activity
from hoglab.actions import store
from hoglab.actions.references import Dependents, check_references, no_dependents
from hoglab.actions.schemas import ActionPatch, StepIn
from hoglab.actions.store import ActionRow
from hoglab.filters import FilterError
from hoglab.filters.hog import FilterContext, build_filter
from hoglab.filters.hog.properties import UnsupportedCohortError
from hoglab.http.errors import from_details, not_found, validation_error
from hoglab.http.fields.dates import utc_now
from hoglab.http.fields.unknown_keys import refuse, within

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoglab.http.identity import Project, User
    from hoglab.storage.database import Database, Transaction

MAX_ACTIONS_PER_PROJECT = 2_000

SCOPE = "Action"
"""Scope of actions in the activity log."""

_FIELDS = ("name", "description", "steps", "tags", "deleted")


class ActionService:
    """Actions of all projects. Broken rules are raised as 400 of the wire."""

    def __init__(
        self,
        database: Database,
        *,
        dependents: Dependents = no_dependents,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.database = database
        self._dependents = dependents
        self._now = now

    def get(self, connection: Connection, project_id: int, action_id: int) -> ActionRow:
        """Return an action. Raises 404 for an unknown or deleted one."""
        row = store.action_by_id(connection, project_id, action_id)
        if row is None or row.deleted:
            raise not_found()
        return row

    def create(self, project: Project, user: User, data: Mapping[str, Any]) -> ActionRow:
        """Make an action; ``data`` holds wire fields by name."""
        now = self._now()
        with self.database.write() as tx:
            if store.count_actions(tx.connection, project.id) >= MAX_ACTIONS_PER_PROJECT:
                raise validation_error(
                    f"A project has at most {MAX_ACTIONS_PER_PROJECT:,} actions. Delete some that are not used."
                )
            values = self._checked(tx, project, None, {"description": "", "steps": [], "tags": [], **data})
            own = {"project_id": project.id, "created_by_id": user.id, "created_at": now, "updated_at": now}
            row = store.insert_action(tx.connection, {**values, "deleted": False, **own})
            detail = {"name": row.name, "changes": None}
            activity.record(tx, project.id, user.id, "created", SCOPE, row.id, detail, now=now)
            tx.changed("actions", project.id)
            return row

    def update(self, project: Project, user: User, action_id: int, data: Mapping[str, Any]) -> ActionRow:
        """Change fields of an action.

        A deleted one is reached only by ``deleted`` false, which restores it. An action in use cannot be deleted.
        """
        now = self._now()
        with self.database.write() as tx:
            row = store.action_by_id(tx.connection, project.id, action_id)
            if row is None or (row.deleted and data.get("deleted", True)):
                raise not_found()
            name = row.name if row.deleted else None
            values = self._checked(tx, project, row, {"name": name, **data} if name else data)
            changed = {name: value for name, value in values.items() if getattr(row, name) != value}
            if not changed:
                return row
            if changed.get("deleted"):
                self._check_unused(tx.connection, row)
            after = store.update_action(tx.connection, row.id, {**changed, "updated_at": now})
            self._record(tx, user, row, after, now)
            tx.changed("actions", project.id)
            return after

    def _checked(
        self, tx: Transaction, project: Project, row: ActionRow | None, data: Mapping[str, Any]
    ) -> dict[str, Any]:
        values = {name: data[name] for name in _FIELDS if name in data}
        if "name" in values and not values.get("deleted"):
            holder = store.action_named(tx.connection, project.id, values["name"])
            if holder is not None and (row is None or holder != row.id):
                raise validation_error(
                    f"There is already an action with this name, ID {holder}.", "name", "unique"
                )
        if "steps" in values:
            stored = {} if row is None else {"steps": row.steps}
            refuse(within(ActionPatch, values), within(ActionPatch, stored))
            values["steps"] = checked_steps(values["steps"])
            check_references(tx.connection, project.id, {"steps": values["steps"]}, stored)
        if "tags" in values:
            values["tags"] = sorted({tag.lower() for tag in values["tags"]})
        return values

    def _check_unused(self, connection: Connection, row: ActionRow) -> None:
        if used_by := self._dependents(connection, row.project_id, row.id):
            raise validation_error(
                f"This action cannot be deleted while it is in use by {', '.join(used_by)}."
            )

    def _record(
        self, tx: Transaction, user: User, before: ActionRow, after: ActionRow, now: datetime
    ) -> None:
        old, new = asdict(before), asdict(after)
        changes = [
            activity.change(SCOPE, name, old[name], new[name]) for name in _FIELDS if old[name] != new[name]
        ]
        what = "updated"
        if before.deleted != after.deleted:
            what = "deleted" if after.deleted else "restored"
        detail = {"name": after.name, "changes": changes}
        activity.record(tx, after.project_id, user.id, what, SCOPE, after.id, detail, now=now)


def checked_steps(steps: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the steps as they are stored: the parts that were sent and are known.

    Raises 400 for steps that cannot match events.
    """
    checked = []
    for index, step in enumerate(steps):
        if not isinstance(step, Mapping):
            raise validation_error("A step must be an object.", f"steps__{index}")
        try:
            checked.append(StepIn.model_validate(dict(step)).sent())
        except ValidationError as error:
            details = error.errors(include_url=False)[0]
            details["loc"] = ("steps", index, *details["loc"])
            raise from_details(details) from None
    try:
        _build(checked)
    except UnsupportedCohortError:
        pass  # metrics can use static cohorts, though hog functions cannot
    except FilterError as error:
        raise validation_error(str(error), "steps") from None
    return checked


def compile_problem(steps: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the reason for which hog functions cannot use an action with these steps; None when they can.

    Cohorts count as usable here: whether one is depends on its current definition.
    """
    try:
        _build(steps)
    except UnsupportedCohortError:
        return None
    except FilterError as error:
        return str(error)
    return None


def _build(steps: Sequence[Mapping[str, Any]]) -> None:
    build_filter({"actions": [{"id": 0}]}, FilterContext(actions={0: steps}))
