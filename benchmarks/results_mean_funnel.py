"""How fast results come out of raw events, beside SQL that was written by hand for the very question.

Generates an experiment with millions of events in a store file, then times a mean metric (sum of a property) and an
ordered funnel of three steps with a window: one result, and the whole series of daily points. The hand-written SQL
answers the same question as fast as we know how; its answers must be the same. Times are the best of several runs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
from tests.embedded import EmbeddedEventStore

from hoglab.analysis.definitions.metric_parser import MetricParser
from hoglab.analysis.execution.computer import Computer
from hoglab.analysis.query.days import DayGrid
from hoglab.analysis.query.model import Question, Span
from hoglab.analysis.query.statements import at_end_of_day
from hoglab.experiments.definitions.fingerprint import Calculation
from hoglab.statistics import CupedConfig, StatisticsConfig

START = datetime(2026, 3, 1, tzinfo=UTC)
DAYS = 30
END = START + timedelta(days=DAYS) - timedelta(seconds=1)
EVENTS_PER_USER = 20

# Half of the users see the flag, each three times; the other events are spread over 20 names.
GENERATE = """
INSERT INTO events BY NAME
SELECT i + 1 AS seq, 1 AS project_id, uuid() AS uuid, kind AS event, 'user-' || person AS distinct_id,
       happened AS timestamp, happened AS captured_at,
       CAST(lpad(to_hex(person), 32, '0') AS UUID) AS person_id, 'full' AS person_mode, i AS log_offset,
       CASE WHEN flagged THEN 'new-checkout' END AS feature_flag,
       CASE WHEN flagged THEN CASE WHEN hash(person) % 2 = 0 THEN 'control' ELSE 'test' END END
           AS feature_flag_response,
       's' || (i // 5) AS session_id, 'company-' || (person // 4) AS group_0, '' AS elements_chain,
       '{"plan":"pro"}' AS person_properties,
       '{"$lib":"web","$current_url":"https://example.com/shop/item?id=' || (i % 977) ||
       '","$browser":"Firefox","$os":"Linux","$device_id":"' || md5(CAST(person AS VARCHAR)) ||
       '","amount":' || (i % 100) || '.5,"size":"' || (CASE WHEN i % 3 = 0 THEN 'big' ELSE 'small' END) ||
       '","padding":"' || repeat('x', 200) || '"}' AS properties
FROM (
    SELECT i, i % $users AS person, (i // $users) AS turn,
           TIMESTAMP '2026-03-01' + to_microseconds(CAST(hash(i) % $span_us AS BIGINT)) AS happened,
           person % 2 = 0 AND turn < 3 AS flagged,
           CASE WHEN flagged THEN '$feature_flag_called'
                WHEN turn = 4 THEN 'checkout' WHEN turn = 5 THEN 'payment' WHEN turn < 9 THEN 'purchase'
                ELSE 'event-' || turn END AS kind
    FROM range($events) AS numbers(i)
)
"""

MEAN = {
    "metric_type": "mean",
    "source": {"kind": "EventsNode", "event": "purchase", "math": "sum", "math_property": "amount"},
}
FUNNEL = {
    "metric_type": "funnel",
    "series": [{"kind": "EventsNode", "event": name} for name in ("checkout", "payment", "purchase")],
    "conversion_window": 7,
    "conversion_window_unit": "day",
}

UNITS = """
u AS (
    SELECT person_id, CASE WHEN min(feature_flag_response) = max(feature_flag_response)
                           THEN min(feature_flag_response) ELSE '$multiple' END AS variant,
           min(timestamp) AS t0
    FROM events
    WHERE project_id = 1 AND event = '$feature_flag_called' AND feature_flag = 'new-checkout'
      AND feature_flag_response IN ('control', 'test') AND timestamp BETWEEN '2026-03-01' AND '2026-03-30 23:59:59'
    GROUP BY person_id
)
"""

HAND_MEAN = f"""
WITH {UNITS},
x AS (
    SELECT e.person_id, sum(coalesce(try_cast(properties->>'$.amount' AS DOUBLE), 0)) AS y
    FROM events AS e JOIN u ON u.person_id = e.person_id
    WHERE project_id = 1 AND event = 'purchase' AND timestamp >= '2026-03-01' AND timestamp < '2026-03-30 23:59:59'
      AND timestamp >= t0
    GROUP BY e.person_id
)
SELECT variant, count(*), sum(coalesce(y, 0)), sum(y * y) FROM u LEFT JOIN x USING (person_id) GROUP BY variant
"""  # noqa: S608 - no value comes from outside

HAND_FUNNEL = f"""
WITH {UNITS},
r AS (
    SELECT e.person_id, timestamp AS ts,
           CASE event WHEN '$feature_flag_called' THEN 0 WHEN 'checkout' THEN 1 WHEN 'payment' THEN 2 ELSE 3 END AS s
    FROM events AS e JOIN u ON u.person_id = e.person_id
    WHERE project_id = 1 AND timestamp >= t0 AND timestamp >= '2026-03-01'
      AND ((event = '$feature_flag_called' AND feature_flag = 'new-checkout'
            AND feature_flag_response IN ('control', 'test') AND timestamp <= '2026-03-30 23:59:59')
           OR (event IN ('checkout', 'payment', 'purchase') AND timestamp <= '2026-04-06 23:59:59'))
),
a AS (SELECT *, max(CASE WHEN s = 0 THEN ts END) OVER w AS b FROM r
      WINDOW w AS (PARTITION BY person_id ORDER BY ts, s ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)),
c AS (SELECT *, CASE WHEN s = 1 AND ts - b <= INTERVAL 7 DAY THEN b END AS c1 FROM a),
d AS (SELECT *, max(c1) OVER w AS b2 FROM c
      WINDOW w AS (PARTITION BY person_id ORDER BY ts, s ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)),
f AS (SELECT *, CASE WHEN s = 2 AND ts - b2 <= INTERVAL 7 DAY THEN b2 END AS c2 FROM d),
g AS (SELECT *, max(c2) OVER w AS b3 FROM f
      WINDOW w AS (PARTITION BY person_id ORDER BY ts, s ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)),
h AS (SELECT person_id, max(CASE WHEN s = 3 AND ts - b3 <= INTERVAL 7 DAY THEN 3 WHEN c2 IS NOT NULL THEN 2
                                 WHEN c1 IS NOT NULL THEN 1 ELSE 0 END) AS reached FROM g GROUP BY person_id)
SELECT variant, count(*), count(*) FILTER (reached >= 1), count(*) FILTER (reached >= 2),
       count(*) FILTER (reached >= 3)
FROM u LEFT JOIN h USING (person_id) GROUP BY variant
"""  # noqa: S608 - no value comes from outside


def no_groups(_project_id: int, _index: int, _limit: int) -> list[tuple[str, dict[str, Any]]]:
    """Return no groups: the questions are about persons."""
    return []


def generated(path: Path, events: int, *, position: int | None = None) -> EmbeddedEventStore:
    """A store with that many events; ``position`` is where in the event log they end, if not at their number."""
    EmbeddedEventStore(path).close()
    with duckdb.connect(str(path)) as connection:
        span_us = DAYS * 86_400_000_000
        values = {"events": events, "users": max(1, events // EVENTS_PER_USER), "span_us": span_us}
        connection.execute(GENERATE, values)
        end = events if position is None else position
        connection.execute("UPDATE store_state SET next_seq = $1, position = $2", [events + 1, end])
    return EmbeddedEventStore(path)


def question(
    metric: dict[str, Any], *, group: int | None = None, lookback_days: int | None = None
) -> Question:
    calculation = Calculation(
        start_date=START,
        feature_flag_key="new-checkout",
        variants=["control", "test"],
        statistics=StatisticsConfig(),
        exposure_criteria={"filterTestAccounts": False},
        aggregation_group_type_index=group,
    )
    cuped = CupedConfig(enabled=lookback_days is not None, lookback_days=lookback_days or 14)
    reader = MetricParser(lambda _identifier: None)
    span = Span(START, END, END, DayGrid.between(START, END, UTC))
    return Question(reader.exposures(1, calculation), span, reader.metric(metric, cuped=cuped))


def best(work: Callable[[], Any], runs: int) -> tuple[float, Any]:
    """The shortest time in milliseconds, and the last answer."""
    times, answer = [], None
    for _ in range(runs):
        started = time.perf_counter()
        answer = work()
        times.append(time.perf_counter() - started)
    return min(times) * 1000, answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="few events")
    parser.add_argument("--events", type=int, default=2_000_000)
    options = parser.parse_args()
    events, runs = (100_000, 1) if options.smoke else (options.events, 5)
    with tempfile.TemporaryDirectory() as directory:
        store = generated(Path(directory) / "events.duckdb", events)
        computer = Computer(store, no_groups, timeout_s=600)
        print(
            f"{events:,} events, {events // EVENTS_PER_USER:,} users, {DAYS} days; milliseconds, best of {runs}"
        )
        print(
            f"{'':8}{'result':>10}{'by hand':>10}{'ratio':>8}{'series':>10}{'days one by one':>18}{'ratio':>8}"
        )
        with store.reader() as reader:
            for name, metric, sql in (("mean", MEAN, HAND_MEAN), ("funnel", FUNNEL, HAND_FUNNEL)):
                asked = question(metric)
                ours, groups = best(partial(computer.result, asked), runs)
                hand, rows = best(partial(reader.execute, sql), runs)
                check(groups, rows)
                series, _ = best(partial(computer.points, asked), max(1, runs - 2))
                single, _ = best(partial(each_day, computer, asked), 1)
                print(
                    f"{name:8}{ours:10.0f}{hand:10.0f}{ours / hand:8.2f}"
                    f"{series:10.0f}{single:18.0f}{single / series:8.1f}"
                )
        store.close()
    return 0


def each_day(computer: Computer, asked: Question) -> None:
    """Each daily point by a statement of its own."""
    for number in range(DAYS):
        computer.result(at_end_of_day(asked, number))


def check(groups: Any, rows: list[tuple[Any, ...]]) -> None:
    """Both ways must agree."""
    for variant, count, *sums in rows:
        if variant == "$multiple":
            continue
        group = groups.groups[variant]
        found = getattr(group, "step_counts", None) or (group.sum, group.sum_squares)
        assert group.number_of_samples == count
        for mine, theirs in zip(found, sums, strict=True):
            assert abs(mine - theirs) <= 1e-9 * max(1.0, abs(theirs)), (mine, theirs)


if __name__ == "__main__":
    sys.exit(main())
