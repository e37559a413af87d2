"""What a day of new events costs, beside computing the same results from all events.

Generates an experiment with millions of events that came in about the order of time, some of them days late, and
asks for the daily points of a mean metric and of an ordered funnel: with the state that the day before left, after
each of the last days; from all events, for the last point and for all points. Answers must be the same. Prints
milliseconds of processor time, which other work of the machine changes little, with the time by the clock beside it.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import duckdb
from tests.embedded import EmbeddedEventStore

from benchmarks.results_mean_funnel import DAYS, EVENTS_PER_USER, FUNNEL, MEAN, START, no_groups, question
from hoglab.analysis.execution.computer import Computer
from hoglab.analysis.incremental.aggregate_cache import AggregateCache, CacheLimits
from hoglab.analysis.query.days import DayGrid
from hoglab.analysis.query.model import Question, Span
from hoglab.analysis.query.statements import Answer

INCREMENT_LIMIT = 0.15
SERIES_LIMIT = 2.0
NEW_DAYS = 3
"""How many days are added one after the other; the median counts."""

Costs = dict[str, dict[str, list[tuple[float, float]]]]
"""Milliseconds of processor time and by the clock, by metric and what was done."""

# Half of the users see the flag, each about three times; the other events are spread over 20 names. One event in
# fifty comes up to three days late.
GENERATE = """
INSERT INTO events BY NAME
SELECT i + 1 AS seq, 1 AS project_id, uuid() AS uuid, kind AS event, 'user-' || person AS distinct_id,
       happened AS timestamp, happened AS captured_at,
       CAST(lpad(to_hex(person), 32, '0') AS UUID) AS person_id, 'full' AS person_mode, i AS log_offset,
       CASE WHEN flagged THEN 'new-checkout' END AS feature_flag,
       CASE WHEN flagged THEN CASE WHEN hash(person) % 2 = 0 THEN 'control' ELSE 'test' END END
           AS feature_flag_response,
       's' || (i // 5) AS session_id, '' AS elements_chain, '{"plan":"pro"}' AS person_properties,
       '{"$lib":"web","$current_url":"https://example.com/shop/item?id=' || (i % 977) ||
       '","$browser":"Firefox","$os":"Linux","$device_id":"' || md5(CAST(person AS VARCHAR)) ||
       '","amount":' || (i % 100) || '.5,"size":"' || (CASE WHEN i % 3 = 0 THEN 'big' ELSE 'small' END) ||
       '","padding":"' || repeat('x', 200) || '"}' AS properties
FROM (
    SELECT i, hash(i * 7) % $users AS person, hash(i * 11) % 20 AS turn,
           TIMESTAMP '2026-03-01' + to_microseconds(CAST(greatest(0, i * $us_per_event
               - CASE WHEN i % 50 = 0 THEN hash(i) % 259200000000 ELSE hash(i) % 3600000000 END) AS BIGINT))
               AS happened,
           person % 2 = 0 AND turn < 3 AS flagged,
           CASE WHEN flagged THEN '$feature_flag_called'
                WHEN turn = 4 THEN 'checkout' WHEN turn = 5 THEN 'payment' WHEN turn < 9 THEN 'purchase'
                ELSE 'event-' || turn END AS kind
    FROM range($first, $last) AS numbers(i)
)
"""


def add_days(execute: Callable[..., Any], events: int, first: int, last: int) -> None:
    """Store what came in on days ``[first, last)`` of an experiment with so many ``events`` altogether."""
    per_day = events // DAYS
    values = {
        "users": max(1, events // EVENTS_PER_USER),
        "us_per_event": 86_400_000_000 / per_day,
        "first": first * per_day,
        "last": last * per_day,
    }
    execute(GENERATE, values)
    execute("UPDATE store_state SET next_seq = $next", {"next": last * per_day + 1})


def at_end_of(asked: Question, day: int) -> Question:
    """The question when so many days have passed."""
    end = START + timedelta(days=day) - timedelta(seconds=1)
    return replace(asked, span=Span(START, end, end, DayGrid.between(START, end, UTC)))


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Milliseconds of processor time and by the clock, and the answer."""
    gc.collect()
    cpu, clock = time.process_time(), time.perf_counter()
    answer = work()
    return (time.process_time() - cpu) * 1000, (time.perf_counter() - clock) * 1000, answer


def check(points: Any, expected: Any) -> None:
    """Both ways must agree on every day."""
    assert points.keys() == expected.keys()
    for day, answer in expected.items():
        assert _numbers(points[day]).keys() == _numbers(answer).keys()
        for place, number in _numbers(answer).items():
            found = _numbers(points[day])[place]
            assert abs(found - number) <= 1e-9 * max(1.0, abs(number)), (day, place, found, number)


def _numbers(answer: Answer) -> dict[tuple[str, int], float]:
    found = {}
    for variant, group in answer.groups.items():
        sums = getattr(group, "step_counts", None) or (group.sum, group.sum_squares)
        for place, number in enumerate((group.number_of_samples, *sums)):
            found[variant, place] = float(number)
    return found


def measure(
    store: EmbeddedEventStore, asked: Question, step: str, costs: dict[str, list[tuple[float, float]]]
) -> None:
    """Answer from what is kept and from all events, and note what that costs."""
    state = AggregateCache(store, timeout_s=600, limits=CacheLimits(min_events=1))
    raw, kept = (
        Computer(store, no_groups, timeout_s=600),
        Computer(store, no_groups, timeout_s=600, aggregate_cache=state),
    )
    raw.result(asked)  # what is read first is read from the disk
    *cost, points = timed(lambda: kept.points(asked))
    costs.setdefault(step, []).append((cost[0], cost[1]))
    *cost, _ = timed(lambda: raw.result(asked))
    costs.setdefault("one point", []).append((cost[0], cost[1]))
    *cost, expected = timed(lambda: raw.points(asked))
    costs.setdefault("all points", []).append((cost[0], cost[1]))
    check(points, expected)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="few events")
    parser.add_argument("--events", type=int, default=20_000_000)
    options = parser.parse_args()
    events = 120_000 if options.smoke else options.events
    metrics = {"mean": question(MEAN), "funnel": question(FUNNEL)}
    costs: Costs = {name: {} for name in metrics}
    checkpoints: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as directory:
        path, cache_path = Path(directory) / "events.duckdb", Path(directory) / "aggregate-cache.duckdb"
        EmbeddedEventStore(path).close()
        with duckdb.connect(
            str(path)
        ) as connection:  # at once, which a store's limit of memory would not let
            add_days(connection.execute, events, 0, DAYS - NEW_DAYS)
        store = EmbeddedEventStore(path, cache_path=cache_path)  # which stays open, as in a server
        for day in range(DAYS - NEW_DAYS, DAYS + 1):
            if day > DAYS - NEW_DAYS:
                with store.reader() as reader:
                    add_days(reader.execute, events, day - 1, day)
                *cost, _ = timed(store.checkpoint)  # as the server's writer does when it is idle
                checkpoints.append((cost[0], cost[1]))
            for name, asked in metrics.items():
                step = "first" if day == DAYS - NEW_DAYS else "increment"
                measure(store, at_end_of(asked, day), step, costs[name])
        store.close()
        size = cache_path.stat().st_size / path.stat().st_size
    print(f"{events:,} events, {events // EVENTS_PER_USER:,} users, {DAYS} days; processor ms (clock ms)")
    for name, found in costs.items():
        middle = {
            what: tuple(map(statistics.median, zip(*each, strict=True))) for what, each in found.items()
        }
        shown = "   ".join(f"{what} {cpu:.0f} ({clock:.0f})" for what, (cpu, clock) in middle.items())
        print(f"{name:8}{shown}")
        increment = middle["increment"][0] / middle["all points"][0]
        point = middle["increment"][0] / middle["one point"][0]
        series = middle["all points"][0] / middle["one point"][0]
        print(f"        increment / all points {increment:.3f}, limit {INCREMENT_LIMIT}", end="   ")
        print(f"increment / one point {point:.3f}", end="   ")
        print(f"all points / one point {series:.2f}, limit {SERIES_LIMIT}")
    cpu, clock = (statistics.median(each) for each in zip(*checkpoints, strict=True))
    print(
        f"state    {size:.2f} of the size of the events   checkpoint of a day of both {cpu:.0f} ({clock:.0f})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
