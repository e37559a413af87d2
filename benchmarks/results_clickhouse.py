"""How fast results come out of raw events in ClickHouse, beside DuckDB: the same statements on the same events.

Generates an experiment as `benchmarks.results_mean_funnel` does, has it in both stores, and times a mean (sum of a
property) and an ordered funnel of three steps with a window. The answers must be the same. ClickHouse is the server
that ``HOGLAB_TEST_CLICKHOUSE`` names, else its engine as a library behind HTTP, on this machine. Times are the best of
several runs.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
from tests.clickhouse import ClickHouseServer, running
from tests.embedded import EmbeddedEventStore

from benchmarks.results_mean_funnel import EVENTS_PER_USER, FUNNEL, MEAN, best, generated, question
from hoglab.analysis.execution import Computer
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
        print(f"{'':8}{'ClickHouse':>12}{'DuckDB':>10}{'ratio':>8}")
        for title, metric in (("mean", MEAN), ("funnel", FUNNEL)):
            asked = question(metric)
            ours, answer = best(partial(Computer(remote, timeout_s=600).result, asked), runs)
            theirs, expected = best(partial(Computer(local, timeout_s=600).result, asked), runs)
            check(answer.groups, expected.groups)
            print(f"{title:8}{ours:12.0f}{theirs:10.0f}{ours / theirs:8.2f}")
        local.close()
        remote.close()
        server.drop(url)
    return 0


def check(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """Both engines must say the same, but for the order in which they add."""
    assert ours.keys() == theirs.keys()
    for key, group in ours.items():
        pairs = zip(numbers(astuple(group)), numbers(astuple(theirs[key])), strict=True)
        assert all(math.isclose(one, other, rel_tol=1e-9) for one, other in pairs)


def numbers(values: Any) -> Iterator[float]:
    for value in values if isinstance(values, tuple | list) else (values,):
        if isinstance(value, tuple | list):
            yield from numbers(value)
        elif isinstance(value, int | float):
            yield value


if __name__ == "__main__":
    sys.exit(main())
