"""Holdouts: the share of people that several experiments leave out (spec experiments-api 7.1)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from hoglab.accounts import activity
from hoglab.accounts import store as accounts
from hoglab.actions.references import check_references
from hoglab.experiments import store
from hoglab.experiments.actor import SCOPE, Actor
from hoglab.experiments.service import ExperimentService, check_none_runs
from hoglab.experiments.store import HoldoutRow
from hoglab.experiments.wire.presentation import holdout_object
from hoglab.experiments.wire.schemas import HoldoutCreate, HoldoutPatch
from hoglab.flags.validation import check_conditions
from hoglab.http.errors import not_found, validation_error
from hoglab.http.fields.unknown_keys import refuse, within

if TYPE_CHECKING:
    from hoglab.storage.database import Transaction


class HoldoutService:
    """Holdouts of all projects. A change reaches the flags of all member experiments in its transaction."""

    def __init__(self, experiments: ExperimentService) -> None:
        self._experiments = experiments
        self._database = experiments.database

    def list(self, actor: Actor, *, limit: int, offset: int) -> tuple[list[dict[str, Any]], int]:
        """Return a page of holdouts, newest first, and how many there are."""
        with self._database.read() as connection:
            rows, count = store.list_holdouts(connection, actor.project.id, limit=limit, offset=offset)
            users = accounts.users(connection, (row.created_by_id for row in rows))
        return [holdout_object(row, users) for row in rows], count

    def read(self, actor: Actor, holdout_id: int) -> dict[str, Any]:
        with self._database.read() as connection:
            return _present(connection, _existing(connection, actor, holdout_id))

    def create(self, actor: Actor, body: HoldoutCreate) -> dict[str, Any]:
        if "filters" not in body.model_fields_set or body.filters is None:
            raise validation_error("Filters are required to create an holdout group")
        filters = _checked(body.filters)
        refuse(within(HoldoutPatch, {"filters": filters}))
        with self._database.write() as tx:
            check_references(tx.connection, actor.project.id, {"filters": filters})
            row = store.insert_holdout(
                tx.connection,
                {
                    "project_id": actor.project.id,
                    "name": body.name,
                    "description": body.description,
                    "filters": filters,
                    "created_by_id": actor.principal.user.id,
                    "created_at": actor.now,
                    "updated_at": actor.now,
                },
            )
            row = store.update_holdout(tx.connection, row.id, {"filters": _named(filters, row.id)})
            _log(tx, actor, "created", row, None)
            return _present(tx.connection, row)

    def patch(self, actor: Actor, holdout_id: int, body: HoldoutPatch) -> dict[str, Any]:
        sent = body.sent()
        if "filters" in sent:
            sent["filters"] = _named(_checked(body.filters), holdout_id)
        with self._database.write() as tx:
            before = _existing(tx.connection, actor, holdout_id)
            refuse(within(HoldoutPatch, sent), within(HoldoutPatch, {"filters": before.filters}))
            if "filters" in sent:
                named = {"filters": sent["filters"]}
                check_references(tx.connection, actor.project.id, named, before.filters)
            row = store.update_holdout(tx.connection, holdout_id, {**sent, "updated_at": actor.now})
            changes = [
                activity.change(SCOPE, name, getattr(before, name), getattr(row, name))
                for name in sent
                if getattr(before, name) != getattr(row, name)
            ]
            if changes:
                _log(tx, actor, "updated", row, changes)
            if "filters" in sent:
                self._reach_flags(tx, actor, holdout_id, row)
            self._experiments.announce(tx, actor.project.id)
            return _present(tx.connection, row)

    def delete(self, actor: Actor, holdout_id: int) -> None:
        """Delete a holdout for good, and remove its experiments and their flags from it.

        Raises 400 while one of them runs: the people whom it held out would enter the experiment.
        """
        with self._database.write() as tx:
            row = _existing(tx.connection, actor, holdout_id)
            check_none_runs(store.in_holdout(tx.connection, holdout_id), "holdout")
            self._reach_flags(tx, actor, holdout_id, None)
            for member in store.in_holdout(tx.connection, holdout_id):
                store.update(tx.connection, member.id, {"holdout_id": None, "updated_at": actor.now})
            store.delete_holdout(tx.connection, holdout_id)
            _log(tx, actor, "deleted", row, None)
            self._experiments.announce(tx, actor.project.id)

    def _reach_flags(self, tx: Transaction, actor: Actor, holdout_id: int, row: HoldoutRow | None) -> None:
        members = store.in_holdout(tx.connection, holdout_id)
        for flag in store.flags(tx.connection, (member.feature_flag_id for member in members)).values():
            if not flag.deleted:
                self._experiments.linkage.set_holdout(tx, actor, flag, row)


def _existing(connection: Connection, actor: Actor, holdout_id: int) -> HoldoutRow:
    row = store.holdout(connection, actor.project.id, holdout_id)
    if row is None:
        raise not_found()
    return row


def _present(connection: Connection, row: HoldoutRow) -> dict[str, Any]:
    return holdout_object(row, accounts.users(connection, [row.created_by_id]))


def _checked(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise validation_error("Filters must be a list of objects.", "filters")
    if not value:
        raise validation_error("Filters must not be empty.", "filters")
    for index, item in enumerate(value):
        share = item.get("rollout_percentage")
        if share is None or isinstance(share, bool) or not isinstance(share, int | float):
            raise validation_error("Rollout percentage must be present.", "filters")
        if not math.isfinite(share) or not 0 <= share <= 100:
            raise validation_error("Rollout percentage must be between 0 and 100.", "filters")
        check_conditions(item, f"filters[{index}]")
    return value


def _named(filters: list[dict[str, Any]], holdout_id: int) -> list[dict[str, Any]]:
    return [{**item, "variant": f"holdout-{holdout_id}"} for item in filters]


def _log(
    tx: Transaction, actor: Actor, what: str, row: HoldoutRow, changes: list[dict[str, Any]] | None
) -> None:
    detail = {"name": row.name, "type": "holdout", "changes": changes}
    user_id = actor.principal.user.id
    activity.record(tx, actor.project.id, user_id, what, SCOPE, row.id, detail, now=actor.now)
