"""Metrics of an experiment: own ones, links to saved ones, and their order (spec experiments-api 3.8 to 3.10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hoglab.actions import store as actions
from hoglab.experiments import store
from hoglab.experiments.definitions import metrics, ordering
from hoglab.experiments.definitions.fingerprint import hashed_part
from hoglab.http.errors import validation_error

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoglab.experiments.actor import Actor
    from hoglab.experiments.definitions.problems import Problem
    from hoglab.experiments.store import ExperimentRow, SavedMetricLink
    from hoglab.experiments.wire.schemas import ExperimentCreate, ExperimentPatch
    from hoglab.http.identity import Project
    from hoglab.storage.database import Transaction

_INLINE = ("metrics", "metrics_secondary")
# Kind of metrics, the column of the inline ones, the column of their order.
_ORDERS = (
    ("primary", "metrics", "primary_metrics_ordered_uuids"),
    ("secondary", "metrics_secondary", "secondary_metrics_ordered_uuids"),
)


class MetricLists:
    """Metrics of experiments as requests write them. Every change is in the transaction of the caller."""

    def __init__(self, problem: Problem) -> None:
        """Take the check of metrics: ``problem`` says why one cannot be computed."""
        self._problem = problem

    def created(
        self, connection: Connection, project: Project, body: ExperimentCreate
    ) -> dict[str, list[dict[str, Any]]]:
        """Return the inline metrics of a new experiment by column, each with its uuid. Raises 400."""
        assigned = metrics.assign_uuids(
            [body.metrics or [], body.metrics_secondary or []],
            taken=_uuids_to_be_linked(connection, project, body.saved_metrics_ids),
        )
        _check_actions(connection, project, [metric for inline_list in assigned for metric in inline_list])
        inline = dict(zip(_INLINE, assigned, strict=True))
        for name, inline_metrics in inline.items():
            self._check_computable(connection, project, inline_metrics, name)
        return {name: _unstamped(inline_metrics) for name, inline_metrics in inline.items()}

    def link_created(
        self,
        tx: Transaction,
        actor: Actor,
        row: ExperimentRow,
        body: ExperimentCreate,
        sent: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Link the saved metrics of a new experiment; return the columns of the orders. Raises 400."""
        links = _set_links(tx, actor, row, body.saved_metrics_ids or [])
        return {
            column: ordering.created(
                getattr(body, column),
                metrics.uuids(getattr(row, inline)) if inline in sent else None,
                _saved_uuids(links, kind),
            )
            for kind, inline, column in _ORDERS
        }

    def changed(
        self,
        tx: Transaction,
        actor: Actor,
        row: ExperimentRow,
        body: ExperimentPatch,
        sent: Mapping[str, Any],
        links: list[SavedMetricLink],
    ) -> dict[str, Any]:
        """Link the saved metrics that are added to ``links``; return the columns that change. Raises 400."""
        after = links
        if body.saved_metrics_ids is not None:
            after = _set_links(tx, actor, row, body.saved_metrics_ids)
        values = self._changed_inline(tx.connection, actor.project, row, sent, after)
        return values | _changed_orders(row, sent, values, links, after)

    def _changed_inline(
        self,
        connection: Connection,
        project: Project,
        row: ExperimentRow,
        sent: Mapping[str, Any],
        links: Sequence[SavedMetricLink],
    ) -> dict[str, Any]:
        lists = {name: sent.get(name, getattr(row, name)) for name in _INLINE}
        values: dict[str, Any] = {name: None for name in lists if name in sent}
        changed = [name for name in values if lists[name] is not None]
        if not changed:
            return values
        untouched = metrics.uuids(m for name in lists if name not in changed for m in lists[name] or ())
        taken = [*untouched, *(link.query.get("uuid", "") for link in links)]
        assigned = metrics.assign_uuids([lists[name] or [] for name in changed], taken)
        known = [*(row.metrics or ()), *(row.metrics_secondary or ())]
        for name, fresh in zip(changed, assigned, strict=True):
            _check_actions(connection, project, fresh)
            self._check_computable(connection, project, fresh, name, known=known)
            values[name] = _unstamped(fresh)
        return values

    def _check_computable(
        self,
        connection: Connection,
        project: Project,
        inline: Sequence[Mapping[str, Any]],
        attr: str,
        *,
        known: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Raise 400 for a metric without results."""
        checked = self.unlike(inline, known)
        for index, metric in enumerate(inline):
            problem = self._problem(connection, project.id, metric) if metric in checked else None
            if problem is not None:
                raise validation_error(f"Invalid metric at index {index}: {problem}", attr)

    def unlike(
        self, candidates: Sequence[Mapping[str, Any]], known: Sequence[Mapping[str, Any]] = ()
    ) -> list[Mapping[str, Any]]:
        """Return the metrics that must have results; ``known`` ones may have lost the objects that they name."""
        kept = [hashed_part(metric) for metric in known]
        return [
            metric
            for metric in candidates
            if not metrics.is_legacy(metric) and hashed_part(metric) not in kept
        ]


def _changed_orders(
    row: ExperimentRow,
    sent: Mapping[str, Any],
    values: Mapping[str, Any],
    before: Sequence[SavedMetricLink],
    after: Sequence[SavedMetricLink],
) -> dict[str, Any]:
    """Return the orders, complete after a change of metrics or links (spec experiments-api 3.10)."""
    links_sent = sent.get("saved_metrics_ids") is not None
    orders: dict[str, Any] = {}
    for kind, inline, column in _ORDERS:
        if not (inline in values or column in sent or links_sent):
            continue
        stored = getattr(row, inline)
        was = [*metrics.uuids(stored), *_saved_uuids(before, kind)]
        is_now = [*metrics.uuids(values.get(inline, stored)), *_saved_uuids(after, kind)]
        order = sent.get(column, getattr(row, column))
        if inline in values or links_sent:
            order = ordering.changed(order, was, is_now)
        ordering.check(order, is_now, kind)
        orders[column] = order
    return orders


def _uuids_to_be_linked(
    connection: Connection, project: Project, wanted: Sequence[Mapping[str, Any]] | None
) -> list[str]:
    rows = store.saved_metrics(connection, project.id, (item["id"] for item in wanted or ()))
    return [row.query["uuid"] for row in rows.values() if "uuid" in row.query]


def _check_actions(connection: Connection, project: Project, inline: Sequence[Mapping[str, Any]]) -> None:
    wanted = metrics.action_ids(inline)
    missing = sorted(wanted - actions.names(connection, project.id, wanted).keys())
    if missing:
        ids = ", ".join(str(action_id) for action_id in missing)
        raise validation_error(
            f"Action(s) with ID {ids} not found or deleted. "
            "Each ActionsNode must reference an existing action belonging to this project."
        )


def _set_links(
    tx: Transaction, actor: Actor, row: ExperimentRow, wanted: Sequence[Mapping[str, Any]]
) -> list[SavedMetricLink]:
    """Make the saved metrics of an experiment exactly ``wanted`` (spec experiments-api 3.9). Raises 400."""
    ids = [item["id"] for item in wanted]
    known = store.saved_metrics(tx.connection, actor.project.id, ids)
    if len(known) != len(ids):
        raise validation_error(
            "Saved metric does not exist or does not belong to this project", "saved_metrics_ids"
        )
    present = {link.saved_metric_id: link for link in store.links(tx.connection, [row.id]).get(row.id, [])}
    store.delete_links(tx.connection, (link.id for key, link in present.items() if key not in ids))
    for item in wanted:
        metadata = item.get("metadata") or {}
        link = present.get(item["id"])
        if link is None:
            store.insert_link(tx.connection, row.id, item["id"], metadata, actor.now)
        elif link.metadata != metadata:
            store.update_link(tx.connection, link.id, metadata)
    return store.links(tx.connection, [row.id]).get(row.id, [])


def _saved_uuids(links: Iterable[SavedMetricLink], kind: str) -> list[str]:
    """Return the uuids of the linked saved metrics of a kind, primary or secondary."""
    return [
        link.query["uuid"]
        for link in links
        if link.is_primary == (kind == "primary") and "uuid" in link.query
    ]


def _unstamped(inline: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return metrics in their stored form: without fingerprints, which are added when metrics are read."""
    return [
        dict(metric)
        if metrics.is_legacy(metric)
        else {key: value for key, value in metric.items() if key != "fingerprint"}
        for metric in inline
    ]
