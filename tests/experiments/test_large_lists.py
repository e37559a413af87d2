"""Lists of a project with 10,000 experiments: through the index, and with the same few statements as ever."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from tests.databases import Template
from tests.experiments.conftest import Lab

from hoglab.experiments.api.listing import ORDERS, list_experiments
from hoglab.storage.database.tables import experiment, experiment_saved_metric, feature_flag

MANY = 10_000
MOST_STATEMENTS = 12
"""Of one page: the caller and the page itself with flags, holdouts, links, users and actions."""

QUERIES = [
    "",
    "?status=running",
    "?status=paused",
    "?status=exposure_frozen",
    "?status=draft&limit=20&offset=4000",
    "?archived=true",
    "?search=777",
    "?created_by_id=1",
    "?event=purchase&limit=10",
    *(f"?order={sign}{name}&limit=10" for name in ORDERS for sign in ("", "-")),
]


@pytest.fixture(scope="module")
def large(prepared: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A project with many experiments, each with a flag; they are copies of one that the API made."""
    path = tmp_path_factory.mktemp("large")
    with prepared.copied(path) as address:
        lab = Lab(address)
        _fill(lab)
        yield lab
        lab.close()


def _fill(lab: Lab) -> None:
    metric = {
        "kind": "ExperimentMetric",
        "metric_type": "mean",
        "source": {"kind": "EventsNode", "event": "purchase"},
    }
    query = {"name": "Saved", "query": metric}
    saved = lab.ok("POST", "/experiment_saved_metrics/", query, status=201)["id"]
    made = lab.create(metrics=[metric], saved_metrics_ids=[{"id": saved, "metadata": {"type": "primary"}}])
    with lab.database.write() as tx:
        connection = tx.connection
        one = connection.execute(sa.select(experiment).where(experiment.c.id == made["id"])).mappings().one()
        flag = (
            connection.execute(sa.select(feature_flag).where(feature_flag.c.key == "button-colour"))
            .mappings()
            .one()
        )
        first = flag["id"] + 1
        numbers = range(MANY)
        connection.execute(
            sa.insert(feature_flag),
            [{**flag, "id": first + n, "key": f"flag-{n}", "active": n % 3 > 0} for n in numbers],
        )
        start = lab.now
        connection.execute(
            sa.insert(experiment),
            [
                {
                    **one,
                    "id": made["id"] + 1 + n,
                    "name": f"Experiment {n}",
                    "feature_flag_id": first + n,
                    "start_date": start if n % 2 else None,
                    "archived": n % 5 == 0,
                }
                for n in numbers
            ],
        )
        connection.execute(
            sa.insert(experiment_saved_metric),
            [
                {
                    "experiment_id": made["id"] + 1 + n,
                    "saved_metric_id": saved,
                    "metadata": {"type": "primary"},
                    "created_at": start,
                }
                for n in numbers
            ],
        )
        tx.changed("experiments", 1)
        tx.changed("flags", 1)


@contextmanager
def statements() -> Iterator[list[str]]:
    """What SQLite is asked on connections that are taken from now on, with the parameters in their places."""
    seen: list[str] = []

    def note(text: str) -> None:
        if threading.current_thread().name.startswith(("hoglab-http", "MainThread")) and "SELECT" in text:
            seen.append(text)  # not what other threads do, and no BEGIN and ROLLBACK

    def trace(connection: sqlite3.Connection, *_: Any) -> None:
        connection.set_trace_callback(note)

    def untrace(connection: sqlite3.Connection, *_: Any) -> None:
        connection.set_trace_callback(None)

    sa.event.listen(sa.Pool, "checkout", trace)
    sa.event.listen(sa.Pool, "checkin", untrace)
    try:
        yield seen
    finally:
        sa.event.remove(sa.Pool, "checkout", trace)
        sa.event.remove(sa.Pool, "checkin", untrace)


@pytest.mark.files
def test_pages_cost_a_few_statements(large: Lab) -> None:
    large.ok("GET", "/experiments/")
    for query in QUERIES:
        with statements() as seen:
            page = large.ok("GET", f"/experiments/{query}")
        assert page["count"] > 0 or "frozen" in query, query
        assert 0 < len(seen) <= MOST_STATEMENTS, (query, seen)


@pytest.mark.files
def test_the_default_page_is_read_from_the_index(large: Lab) -> None:
    with statements() as seen, large.database.read() as connection:
        ids, count = list_experiments(connection, 1, lambda _name: None, limit=100, offset=0, now=large.now)
        assert (len(ids), count) == (100, MANY - MANY // 5 + 1)
        asked = list(seen)
        assert len(asked) == 2
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}").all() for text in asked]
    details = [row.detail for plan in plans for row in plan]
    assert any("ix_experiment_list" in each for each in details), details
    assert not [each for each in details if each.startswith("SCAN") or "TEMP B-TREE" in each], details
