"""How fast results come out of raw events in ClickHouse, beside DuckDB: the same statements on the same events.

Generates an experiment as `benchmarks.results_mean_funnel` does, has it in both stores, and times a mean (sum of a
property) and an ordered funnel of three steps with a window; with ``--all`` one metric of every kind. The answers must
be the same. What the metrics read has typed columns, as the properties of a running experiment have after some minutes.
ClickHouse is the server that ``HOGLAB_TEST_CLICKHOUSE`` names, else its engine as a library behind HTTP, on this
machine. Times are the best of several runs.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
from tests.clickhouse import ClickHouseServer, running
from tests.embedded import EmbeddedEventStore

from benchmarks.results_mean_funnel import EVENTS_PER_USER, FUNNEL, MEAN, best, generated, no_groups, question
from hoglab.analysis.execution import Computer
from hoglab.analysis.execution.statement_runner import whole
from hoglab.analysis.query import Answer, compiled
from hoglab.analysis.query.model import Question
from hoglab.analysis.query.statements import Groups
from hoglab.storage.event_store.clickhouse.schema import EVENTS
from hoglab.storage.event_store.clickhouse.store import ClickHouseEventStore

FILE_ROWS = 500_000
"""Events that are handed from one store to the other at once."""
HANDED_OVER = """
COPY (
    SELECT * EXCLUDE (uuid, person_id), uuid::VARCHAR AS uuid, person_id::VARCHAR AS person_id, 0 AS log_partition,
           0 AS log_index, 202603 AS month
    FROM events WHERE seq > {after} AND seq <= {last}
) TO '{file}' (FORMAT parquet)
"""


PURCHASE = {"kind": "EventsNode", "event": "purchase"}
AMOUNT = {**PURCHASE, "math": "sum", "math_property": "amount"}
BIG = {**PURCHASE, "properties": [{"key": "size", "value": "big", "operator": "exact", "type": "event"}]}


def mean(**source: Any) -> dict[str, Any]:
    return {"metric_type": "mean", "source": {**PURCHASE, **source}}


def questions() -> dict[str, Question]:
    """A question about a metric of every kind."""
    amounts = {math: mean(math=math, math_property="amount") for math in ("avg", "min", "max")}
    retention = {
        "metric_type": "retention",
        "start_event": {"kind": "EventsNode", "event": "checkout"},
        "completion_event": PURCHASE,
        "retention_window_start": 1,
        "retention_window_end": 7,
        "retention_window_unit": "day",
        "start_handling": "first_seen",
    }
    metrics: dict[str, dict[str, Any]] = {
        "mean": MEAN,
        "funnel": FUNNEL,
        "count": mean(),
        "filtered": {"metric_type": "mean", "source": BIG},
        **amounts,
        "dau": mean(math="dau"),
        "sessions": mean(math="unique_session"),
        "bounds": {**MEAN, "lower_bound_percentile": 0.05, "upper_bound_percentile": 0.95},
        "quantile": {"metric_type": "quantile", "source": AMOUNT, "quantile_level": 0.9},
        "unordered": {**FUNNEL, "funnel_order_type": "unordered"},
        "strict": {**FUNNEL, "funnel_order_type": "strict"},
        "overlapping": {**FUNNEL, "series": [PURCHASE, BIG]},
        "ratio": {"metric_type": "ratio", "numerator": AMOUNT, "denominator": PURCHASE},
        "retention": retention,
        "by size": {**MEAN, "breakdownFilter": {"breakdowns": [{"property": "size", "type": "event"}]}},
    }
    return {
        **{title: question(metric) for title, metric in metrics.items()},
        "CUPED": question(MEAN, lookback_days=14),
        "companies": question(MEAN, group=0),
        "companies' funnel": question(FUNNEL, group=0),
    }


def with_typed_columns(store: ClickHouseEventStore, asked: Iterable[Question]) -> None:
    """Have columns for what the questions read, written everywhere."""
    now = datetime.now(UTC)
    for moment in (now - timedelta(hours=1), now):
        for each in asked:
            compiled(whole(each), store.dialect)
        store.typed_columns.maintain_columns(moment)
    while store.typed_columns.maintain_columns(now):
        time.sleep(0.2)


def fill(server: ClickHouseServer, url: str, path: Path, folder: Path, events: int) -> None:
    """Have the events of a DuckDB file in ClickHouse."""
    with duckdb.connect(str(path), read_only=True) as connection:
        for after in range(0, events, FILE_ROWS):
            file = folder / "events.parquet"
            last = after + FILE_ROWS
            connection.execute(HANDED_OVER.format(after=after, last=last, file=file))
            server.load(url, EVENTS, file.read_bytes(), "Parquet")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="few events")
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--all", action="store_true", help="a metric of every kind")
    options = parser.parse_args()
    events, runs = (50_000, 1) if options.smoke else (options.events, 3)
    with tempfile.TemporaryDirectory() as name, running(Path(name) / "server") as server:
        folder, url = Path(name), server.database()
        generated(folder / "events.duckdb", events).close()
        remote = ClickHouseEventStore(url, folder / "keys", memory="4GB", query_timeout_s=600)
        fill(server, url, folder / "events.duckdb", folder, events)
        local = EmbeddedEventStore(folder / "events.duckdb")
        print(
            f"{events:,} events, {events // EVENTS_PER_USER:,} users, {os.cpu_count()} processors; ", end=""
        )
        print(f"milliseconds, best of {runs}")
        print(f"{'':18}{'ClickHouse':>12}{'DuckDB':>10}{'ratio':>8}")
        chosen = (
            questions()
            if options.all or options.smoke
            else {"mean": question(MEAN), "funnel": question(FUNNEL)}
        )
        with_typed_columns(remote, chosen.values())
        for title, asked in chosen.items():
            ours, answer = best(partial(Computer(remote, no_groups, timeout_s=600).result, asked), runs)
            theirs, expected = best(partial(Computer(local, no_groups, timeout_s=600).result, asked), runs)
            check(title, answer, expected)
            print(f"{title:18}{ours:12.0f}{theirs:10.0f}{ours / theirs:8.2f}")
        local.close()
        remote.close()
        server.drop(url)
    return 0


def check(title: str, ours: Answer, theirs: Answer) -> None:
    """Both engines must say the same, but for the order in which they add."""
    assert ours.groups, title
    assert ours.cells.keys() == theirs.cells.keys()
    _check(title, ours.groups, theirs.groups)
    for cell, groups in ours.cells.items():
        _check(f"{title} {cell}", groups, theirs.cells[cell])


def _check(title: str, ours: Groups, theirs: Groups) -> None:
    assert ours.keys() == theirs.keys(), title
    for key, group in ours.items():
        pairs = list(zip(numbers(astuple(group)), numbers(astuple(theirs[key])), strict=True))
        assert all(math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-6) for one, other in pairs), (
            title,
            pairs,
        )


def numbers(values: Any) -> Iterator[float]:
    for value in values if isinstance(values, tuple | list) else (values,):
        if isinstance(value, tuple | list):
            yield from numbers(value)
        elif isinstance(value, int | float):
            yield value


if __name__ == "__main__":
    sys.exit(main())
