"""Saved metrics: metrics that several experiments share (spec experiments-api 7.2)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sqlalchemy import Connection

from hoglab.accounts import activity
from hoglab.accounts import store as accounts
from hoglab.actions.references import check_references
from hoglab.experiments import store
from hoglab.experiments.actor import SCOPE, Actor
from hoglab.experiments.definitions import metrics
from hoglab.experiments.definitions.fingerprint import hashed_part
from hoglab.experiments.service import ExperimentService, check_none_runs
from hoglab.experiments.store import SavedMetricRow
from hoglab.experiments.wire.presentation import saved_metric_object
from hoglab.experiments.wire.schemas import SavedMetricCreate, SavedMetricPatch
from hoglab.http.errors import not_found, validation_error
from hoglab.http.fields.unknown_keys import refuse, within

if TYPE_CHECKING:
    from hoglab.storage.database import Transaction

METRIC_TYPES = ("mean", "funnel", "ratio", "retention")


class SavedMetricService:
    """Saved metrics of all projects."""

    def __init__(self, experiments: ExperimentService) -> None:
        self._experiments = experiments
        self._database = experiments.database

    def list(
        self, actor: Actor, *, search: str | None, limit: int, offset: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Return a page of saved metrics by name, and how many there are."""
        with self._database.read() as connection:
            rows, count = store.list_saved_metrics(
                connection, actor.project.id, search=search, limit=limit, offset=offset
            )
            users = accounts.users(connection, (row.created_by_id for row in rows))
        return [saved_metric_object(row, users, actor.principal) for row in rows], count

    def read(self, actor: Actor, metric_id: int) -> dict[str, Any]:
        with self._database.read() as connection:
            return _present(connection, actor, _existing(connection, actor, metric_id))

    def create(self, actor: Actor, body: SavedMetricCreate) -> dict[str, Any]:
        if body.query is None:
            raise validation_error("Query is required to create a saved metric")
        query = _checked(body.query)
        refuse(within(SavedMetricPatch, {"query": query}))
        query.setdefault("uuid", str(uuid4()))
        problems = self._experiments.problems
        with problems.prechecked(actor.project.id, [query]), self._database.write() as tx:
            _check_name(tx.connection, actor, body.name, None)
            self._check_computable(tx.connection, actor, query)
            check_references(tx.connection, actor.project.id, {"query": query})
            row = store.insert_saved_metric(
                tx.connection,
                {
                    "project_id": actor.project.id,
                    "name": body.name,
                    "description": body.description,
                    "query": query,
                    "tags": _tags(body.tags),
                    "created_by_id": actor.principal.user.id,
                    "created_at": actor.now,
                    "updated_at": actor.now,
                },
            )
            _log(tx, actor, "created", row, None)
            return _present(tx.connection, actor, row)

    def patch(self, actor: Actor, metric_id: int, body: SavedMetricPatch) -> dict[str, Any]:
        sent = body.sent()
        with self._prechecked(actor, metric_id, sent), self._database.write() as tx:
            before = _existing(tx.connection, actor, metric_id)
            if "query" in sent:
                if body.query is None:
                    raise validation_error("Query is required to create a saved metric")
                sent["query"] = _same_uuid(_checked(body.query), before)
                refuse(within(SavedMetricPatch, sent), within(SavedMetricPatch, {"query": before.query}))
                if hashed_part(sent["query"]) != hashed_part(before.query):
                    self._check_computable(tx.connection, actor, sent["query"])
                named = {"query": sent["query"]}
                check_references(tx.connection, actor.project.id, named, before.query)
            if "tags" in sent:
                sent["tags"] = _tags(body.tags)
            if "name" in sent:
                _check_name(tx.connection, actor, body.name, metric_id)
            row = store.update_saved_metric(tx.connection, metric_id, {**sent, "updated_at": actor.now})
            changes = [
                activity.change(SCOPE, name, getattr(before, name), getattr(row, name))
                for name in sent
                if getattr(before, name) != getattr(row, name)
            ]
            if changes:
                _log(tx, actor, "updated", row, changes)
                self._experiments.keep_plans_of(tx, actor, store.linked_experiments(tx.connection, metric_id))
            self._experiments.announce(tx, actor.project.id)
            return _present(tx.connection, actor, row)

    def _prechecked(
        self, actor: Actor, metric_id: int, sent: Mapping[str, Any]
    ) -> AbstractContextManager[None]:
        """Check a changed metric before the transaction."""
        with self._database.read() as connection:
            before = _existing(connection, actor, metric_id)
        new = [] if sent.get("query") is None else [_checked(sent["query"])]
        changed = [query for query in new if hashed_part(query) != hashed_part(before.query)]
        return self._experiments.problems.prechecked(actor.project.id, changed)

    def _check_computable(self, connection: Connection, actor: Actor, query: dict[str, Any]) -> None:
        problem = self._experiments.problems.of_metric(connection, actor.project.id, query)
        if problem is not None:
            raise validation_error(f"Invalid metric: {problem}", "query")

    def delete(self, actor: Actor, metric_id: int) -> None:
        """Delete a saved metric for good, and from the orders of the experiments that used it.

        Raises 400 while one of them runs: it would be decided without the metric.
        """
        with self._database.write() as tx:
            row = _existing(tx.connection, actor, metric_id)
            uuid = row.query.get("uuid")
            linked = store.linked_experiments(tx.connection, metric_id)
            check_none_runs(linked, "shared metric")
            for user in linked:
                orders = {
                    column: [item for item in getattr(user, column) or () if item != uuid]
                    for column in ("primary_metrics_ordered_uuids", "secondary_metrics_ordered_uuids")
                    if uuid in (getattr(user, column) or ())
                }
                store.update(tx.connection, user.id, {**orders, "updated_at": actor.now})
            store.delete_saved_metric(tx.connection, metric_id)
            _log(tx, actor, "deleted", row, None)
            self._experiments.announce(tx, actor.project.id)


def _existing(connection: Connection, actor: Actor, metric_id: int) -> SavedMetricRow:
    row = store.saved_metrics(connection, actor.project.id, [metric_id]).get(metric_id)
    if row is None:
        raise not_found()
    return row


def _present(connection: Connection, actor: Actor, row: SavedMetricRow) -> dict[str, Any]:
    return saved_metric_object(row, accounts.users(connection, [row.created_by_id]), actor.principal)


def _check_name(connection: Connection, actor: Actor, name: str, own_id: int | None) -> None:
    holder = store.saved_metric_named(connection, actor.project.id, name)
    if holder is not None and holder != own_id:
        raise validation_error("A shared metric with this name already exists.", "name")


def _checked(query: Any) -> dict[str, Any]:
    """Return a checked metric (spec experiments-api 7.2), without its fingerprint, which depends on the experiment."""
    if not isinstance(query, dict):
        raise validation_error("Query is required to create a saved metric")
    kind = query.get("kind")
    if isinstance(kind, str) and kind in metrics.LEGACY_KINDS:
        raise validation_error(
            f"Legacy metric kind '{kind}' is no longer supported for new saved metrics. "
            f"Use '{metrics.KIND}' instead."
        )
    if kind != metrics.KIND:
        raise validation_error(f"Metric query kind must be '{metrics.KIND}'")
    metric_type = query.get("metric_type")
    if not metric_type:
        raise validation_error("ExperimentMetric requires a metric_type")
    if metric_type not in METRIC_TYPES:
        raise validation_error(
            "ExperimentMetric metric_type must be 'mean', 'funnel', 'ratio', or 'retention'"
        )
    if (problem := metrics.schema_problem(query)) is not None:
        raise validation_error(f"Invalid metric: {problem}", "query")
    kept = {key: value for key, value in query.items() if key != "fingerprint"}
    if kept.get("uuid") is None:
        kept.pop("uuid", None)
    return kept


def _same_uuid(query: dict[str, Any], before: SavedMetricRow) -> dict[str, Any]:
    known = before.query.get("uuid")
    if query.setdefault("uuid", known) != known:
        raise validation_error("Saved metric UUID cannot be changed")
    return query


def _tags(tags: list[str]) -> list[str]:
    return sorted({tag.lower() for tag in tags})


def _log(
    tx: Transaction, actor: Actor, what: str, row: SavedMetricRow, changes: list[dict[str, Any]] | None
) -> None:
    detail = {"name": row.name, "type": "shared_metric", "changes": changes}
    user_id = actor.principal.user.id
    activity.record(tx, actor.project.id, user_id, what, SCOPE, row.id, detail, now=actor.now)
