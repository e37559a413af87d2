"""The rules of hog functions (spec: hog-functions-api 4, 19, 22)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog

from hoglab.accounts import activity
from hoglab.functions import revisions, store
from hoglab.functions.changes import VERSIONED, changes_between
from hoglab.functions.configuration import ORDERED_TYPES, Builder, FunctionPatch, NewlySecret
from hoglab.functions.configuration.schemas import MAX_EXECUTION_ORDER
from hoglab.functions.configuration.stored import (
    SCOPE,
    activity_detail,
    live_config,
    new_row,
    read_configuration,
    row_values,
)
from hoglab.functions.editing import diagnose, doubts
from hoglab.functions.errors import InvalidFunctionError, stale_update
from hoglab.functions.presentation import Presenter
from hoglab.functions.status import AllHealthy, FunctionStates
from hoglab.http.errors import not_found, validation_error
from hoglab.http.fields.dates import utc_now
from hoglab.http.fields.fields import parse_integer, parse_uuid

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from hoglab.filters.hog import FilterContext
    from hoglab.functions.configuration import Configuration
    from hoglab.functions.secrets import SecretBox
    from hoglab.functions.store import Row
    from hoglab.http.identity import Project
    from hoglab.storage.database import Database, Transaction

_logger = structlog.get_logger("hoglab.functions")

DEFAULT_CAPS: Mapping[str, int] = {"transformation": 20, "transformation_log": 5}
"""Maximum numbers of enabled functions in one project, by type."""


@dataclass(frozen=True, slots=True)
class TestFailure:
    """The first test case that failed: its place, the reason, and the result of its run."""

    __test__ = False  # the name is the domain's, and no test class

    index: int
    message: str
    report: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Build:
    """A configuration that a request makes, with what its filters refer to.

    Writes build before their transaction, which holds up others. In it the build is used unless something that it
    depends on was changed meanwhile.
    """

    context: FilterContext
    built: Configuration


@dataclass(frozen=True, slots=True)
class _Change(_Build):
    """The build of a stored function, with the function as it was."""

    row: Row
    before: Configuration


TestCheck = Callable[["Project", "Configuration", "FilterContext"], TestFailure | None]
"""Runs the test cases of a configuration; None when all of them pass."""


class FunctionService:
    """Creates, reads and changes hog functions."""

    def __init__(
        self,
        database: Database,
        box: SecretBox,
        states: FunctionStates | None = None,
        *,
        caps: Mapping[str, int] = DEFAULT_CAPS,
        check_tests: TestCheck | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """Create the service.

        ``states`` is the runtime's view of functions; without it, enabled functions count as healthy.
        """
        self.database = database
        self.box = box
        self.states = states or AllHealthy()
        self.presenter = Presenter(box, self.states)
        self._caps = caps
        self._check_tests = check_tests
        self.now = now

    # --- reading ---

    def get(self, project: Project, function_id: str) -> dict[str, Any]:
        """Return one function in full. Raises 404."""
        with self.database.read() as connection:
            row = self.row(connection, project, function_id)
            return self.presenter.full(connection, [row])[0]

    def row(self, connection: Connection, project: Project, function_id: str) -> Row:
        """Return one function as it is stored. Raises 404."""
        row = store.get(connection, project.id, function_id)
        if row is None or row["deleted"]:
            raise not_found()
        return row

    # --- checking ---

    def configure(
        self, project: Project, sent: FunctionPatch, function_id: str | None = None
    ) -> Configuration:
        """Return the configuration that a body would give a stored function, or a new one; nothing is stored.

        For test runs. An id that does not exist counts as new. Raises `InvalidFunctionError`.
        """
        with self.database.read() as connection:
            current = self._current(connection, project, function_id)
            return Builder(sent, current, store.filter_context(connection, project)).build()

    def diagnose(
        self, project: Project, sent: FunctionPatch, function_id: str | None = None
    ) -> list[dict[str, Any]]:
        """Return diagnostics of a configuration for an editor; an id that does not exist counts as new."""
        with self.database.read() as connection:
            current = self._current(connection, project, function_id)
            return diagnose(sent, current, store.filter_context(connection, project))

    def _current(
        self, connection: Connection, project: Project, function_id: str | None
    ) -> Configuration | None:
        row = None if function_id is None else store.get(connection, project.id, function_id)
        return None if row is None or row["deleted"] else read_configuration(row, self.box)

    def staged(self, project: Project, function_id: str) -> Mapping[str, Any] | None:
        """Return the content of a function's draft, None when there is none."""
        with self.database.read() as connection:
            if store.get(connection, project.id, function_id) is None:
                return None
            draft = revisions.draft(connection, function_id)
            return None if draft is None else draft["content"]

    # --- writing ---

    def create(self, project: Project, user_id: int | None, sent: FunctionPatch) -> dict[str, Any]:
        """Make a function, and return it with the ``diagnostics`` of doubtful texts. Raises `InvalidFunctionError`."""
        with self.database.read() as connection:
            build = self._created(connection, project, sent)
        self._run_tests(project, build, sent)
        with self.database.write() as tx:
            built = self._created(tx.connection, project, sent, build).built
            if built.active:
                self._check_cap(tx, project, built.type)
            if built.type in ORDERED_TYPES and built.execution_order is None:
                built = self._at_the_end(tx, project, built)
            row = new_row(built, self.box, project_id=project.id, user_id=user_id, now=self.now())
            store.add(tx.connection, row)
            self.log(tx, project, user_id, "created", row, None)
            tx.changed("functions", project.id, row["id"])
        return self._after_save(row, built)

    def update(
        self,
        project: Project,
        user_id: int | None,
        function_id: str,
        sent: FunctionPatch,
        *,
        publishes: datetime | None = None,
    ) -> dict[str, Any]:
        """Change a function, delete or restore it, and return it as `create` does.

        Raises 404, 409 and `InvalidFunctionError`.
        ``publishes`` is the time when the draft ``sent`` was staged; it is deleted afterwards.
        """
        with self.database.read() as connection:
            change = self._changed(connection, project, function_id, sent)
        self._run_tests(project, change, sent)
        with self.database.write() as tx:
            change = self._changed(tx.connection, project, function_id, sent, change)
            row, before, built = change.row, change.before, change.built
            self._check_hidden_template(built)
            self._settle_draft(tx, function_id, before, built, publishes)
            if built.active and not before.active:
                self._check_cap(tx, project, built.type)
            if self._returns(before, built, sent):
                built = self._at_the_end(tx, project, built, but=function_id)
            values = {**row_values(built, self.box), "updated_at": self.now()}
            changes = changes_between(before, built)
            if any(change["field"] in VERSIONED for change in changes):
                values["version"] = row["version"] + 1
            store.change(tx.connection, function_id, values)
            changed = {**row, **values}
            if changed["version"] != row["version"]:
                self._keep_versions(tx, row, before, changed, built, user_id)
            if changes or publishes is not None:
                what = "updated" if publishes is None else "published"
                self.log(tx, project, user_id, what, changed, changes)
            self._forget(tx, project, function_id, NewlySecret.between(before, built))
            tx.changed("functions", project.id, function_id)
        return self._after_save(changed, built)

    def _forget(self, tx: Transaction, project: Project, function_id: str, newly_secret: NewlySecret) -> None:
        """Remove what has become secret from the history."""
        if newly_secret:
            revisions.rewrite(tx.connection, function_id, newly_secret.removed_from_content)
            activity.rewrite(tx, project.id, SCOPE, function_id, newly_secret.removed_from_change)

    def _settle_draft(
        self,
        tx: Transaction,
        function_id: str,
        before: Configuration,
        built: Configuration,
        publishes: datetime | None,
    ) -> None:
        """Delete a published draft. Refuse to enable a function whose draft nobody has looked at."""
        draft = revisions.draft(tx.connection, function_id)
        if publishes is not None:
            if draft is None or draft["created_at"] != publishes:
                raise stale_update()
            revisions.discard_draft(tx.connection, function_id)
        elif draft is not None and built.enabled and not before.enabled:
            raise InvalidFunctionError(
                "This function has a staged draft. Publish or discard it before you enable the function.",
                "enabled",
            )

    def _run_tests(self, project: Project, build: _Build, sent: FunctionPatch) -> None:
        """Refuse a change that fails a test case of its own, unless the request allows it."""
        built = build.built
        if self._check_tests is None or not built.x_tests or built.deleted or sent.read("force"):
            return
        failure = self._check_tests(project, built, build.context)
        if failure is not None:
            raise InvalidFunctionError(
                f"Test case '{built.x_tests[failure.index]['name']}' failed: {failure.message}",
                "x_tests",
                failure.index,
                code="test_failed",
                extra={"extra": {"report": failure.report}},
            )

    def _keep_versions(
        self,
        tx: Transaction,
        row: Row,
        before: Configuration,
        changed: Row,
        built: Configuration,
        user_id: int | None,
    ) -> None:
        """Store the version that a change makes, and the one before it, if that is not stored yet."""
        first = {"user_id": row["created_by_id"], "at": row["updated_at"]}
        revisions.add(tx.connection, row["id"], row["version"], live_config(before), **first)
        last = {"user_id": user_id, "at": changed["updated_at"]}
        revisions.add(tx.connection, row["id"], changed["version"], live_config(built), **last)

    # --- inside a transaction ---

    def _created(
        self, connection: Connection, project: Project, sent: FunctionPatch, earlier: _Build | None = None
    ) -> _Build:
        """Return the build of a new function: ``earlier`` if that is up to date. Raises `InvalidFunctionError`."""
        context = store.filter_context(connection, project)
        if earlier is not None and earlier.context == context:
            return earlier
        return _Build(context, Builder(sent, None, context).build())

    def _changed(
        self,
        connection: Connection,
        project: Project,
        function_id: str,
        sent: FunctionPatch,
        earlier: _Change | None = None,
    ) -> _Change:
        """Return the build of a stored function: ``earlier`` if that is up to date.

        Raises 404, 409 for a change of an older state, and `InvalidFunctionError`.
        """
        row = store.get(connection, project.id, function_id)
        if row is None or (row["deleted"] and sent.body.get("deleted") is not False):
            raise not_found()
        base = sent.read("base_updated_at")
        if base is not None and row["updated_at"] > base:
            raise stale_update()
        context = store.filter_context(connection, project)
        if earlier is not None and (earlier.row, earlier.context) == (row, context):
            return earlier
        before = read_configuration(row, self.box)
        return _Change(context, Builder(sent, before, context).build(), row, before)

    def rearrange(self, project: Project, user_id: int | None, orders: Any) -> list[dict[str, Any]]:
        """Give ordered functions new places, all or none. Raises 400."""
        wanted = _wanted_orders(orders)
        with self.database.write() as tx:
            rows = {row["id"]: row for row in self._ordered_rows(tx.connection, project)}
            for function_id in wanted:
                if function_id not in rows:
                    raise validation_error(f"HogFunction with id {function_id} does not exist")
            types = {rows[function_id]["type"] for function_id in wanted}
            if len(types) > 1:
                raise validation_error("Cannot rearrange functions of different types in one request")
            moved = {
                function_id: order
                for function_id, order in wanted.items()
                if rows[function_id]["execution_order"] != order
            }
            for function_id, order in moved.items():
                row = rows[function_id]
                store.change(tx.connection, function_id, {"execution_order": order, "updated_at": self.now()})
                before = row["execution_order"]
                change = activity.change(
                    SCOPE, "priority", None if before is None else str(before), str(order)
                )
                self.log(tx, project, user_id, "updated", row, [change])
            if moved:
                tx.changed("functions", project.id)
        with self.database.read() as connection:
            return self.presenter.full(connection, store.all_of_type(connection, project.id, types.pop()))

    def _ordered_rows(self, connection: Connection, project: Project) -> list[Row]:
        return [
            row
            for function_type in sorted(ORDERED_TYPES)
            for row in store.all_of_type(connection, project.id, function_type)
        ]

    def _after_save(self, row: Row, built: Configuration) -> dict[str, Any]:
        if row["enabled"] and not row["deleted"]:
            try:
                self.states.function_saved(row["id"])
            except Exception:  # the function is stored: a client that saw an error would create it again
                _logger.exception("function_state_not_reset", function_id=row["id"])
        with self.database.read() as connection:
            saved = self.presenter.full(connection, [row])[0]
        diagnostics = doubts(built)
        return {**saved, "diagnostics": diagnostics} if diagnostics else saved

    def _check_cap(self, tx: Transaction, project: Project, function_type: str | None) -> None:
        cap = self._caps.get(function_type or "destination")
        if cap is None or function_type is None:
            return
        if store.count_active(tx.connection, project.id, function_type) >= cap:
            raise InvalidFunctionError(
                f"Maximum of {cap} enabled {function_type.replace('_', ' ')} functions allowed per team. "
                "Please contact support if you need this limit increased, or disable some existing ones.",
                "type",
            )

    def _check_hidden_template(self, built: Configuration) -> None:
        if built.template is not None and built.template.get("status") == "hidden" and built.active:
            raise InvalidFunctionError(
                "This function was created from an internal template and can only be disabled or deleted, "
                "not kept enabled.",
                "enabled",
            )

    def _returns(self, before: Configuration, built: Configuration, sent: FunctionPatch) -> bool:
        """Return whether an ordered function is enabled or restored, and so goes to the end of the order."""
        if built.type not in ORDERED_TYPES:
            return False
        restored = before.deleted and not built.deleted
        enabled = not before.enabled and built.enabled and not sent.has("execution_order")
        return restored or enabled

    def _at_the_end(
        self, tx: Transaction, project: Project, built: Configuration, but: str | None = None
    ) -> Configuration:
        last = store.last_order(tx.connection, project.id, built.type or "", but)
        return replace(built, execution_order=min(last + 1, MAX_EXECUTION_ORDER))

    def log(
        self,
        tx: Transaction,
        project: Project,
        user_id: int | None,
        what: str,
        row: Row,
        changes: list[dict[str, Any]] | None,
    ) -> None:
        """Write into the activity log that ``what`` was done to a function."""
        detail = activity_detail(row, changes)
        activity.record(tx, project.id, user_id, what, SCOPE, row["id"], detail, now=self.now())


def _wanted_orders(orders: Any) -> dict[str, int]:
    """Return new places by function id."""
    if not isinstance(orders, Mapping) or not orders:
        raise validation_error("No orders provided")
    wanted = {}
    for sent_id, place in orders.items():
        order = parse_integer(place)
        if order is None:
            raise validation_error("A valid integer is required.", f"orders__{sent_id}")
        if order < 0:
            text = "Ensure this value is greater than or equal to 0."
            raise validation_error(text, f"orders__{sent_id}", "min_value")
        if order > MAX_EXECUTION_ORDER:
            text = f"Ensure this value is less than or equal to {MAX_EXECUTION_ORDER}."
            raise validation_error(text, f"orders__{sent_id}", "max_value")
        wanted[parse_uuid(sent_id) or sent_id] = order
    return wanted
