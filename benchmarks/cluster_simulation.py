"""A day of a billion events in the cluster shape, simulated from what an event, a batch and a run cost here.

Nobody has run it. The costs are processor time of each part, measured on one machine (``--measure``, some minutes; they
are kept in cluster_costs.json, of which all else is computed). Then, around a peak of three times the mean:

- how many processors each part uses at the peak, and how many processes of each role that takes;
- which part is at its limit first when there are more events, given the largest machines for those that are only one;
- how long events wait to be stored. Processes that ingest take batches of their partitions in turn, each in one thread,
  and wait for a processor of PostgreSQL's and then of ClickHouse's. Partitions get unequal shares. In the peak one
  process is killed, whose partitions wait for their leases to end, and later the brokers stand still; what came
  meanwhile comes behind it.

What is not in it: disks and networks, merges of ClickHouse beyond those of the measured minutes, queries, and that a
processor of a server is another than one of this machine's.

Run: ``python -m benchmarks.cluster_simulation [--smoke | --measure] [--events N]``.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import random
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter

from benchmarks._cluster_costs import Costs, measure
from benchmarks.capture_batches import EVENTS
from hoglab.ingestion.loop import LINGER_S
from hoglab.ingestion.steps import IngestionLimits
from hoglab.storage.event_log.leases import LEASE_S
from hoglab.storage.event_log.partitions import RENEW_EVERY_S

KEPT = Path(__file__).with_name("cluster_costs.json")
DAY_S = 86_400
PEAK = 3.0
RUNS_OF_EVENTS = 0.05
"""Runs of functions for each event."""
PARTITIONS = 64
HOT = 3.0
"""Share of the largest partition, over that of an equal one."""
BUSY = 0.6
"""Of its processor a process may use in the peak; the rest is for those that are down, and for what was put off."""
LIMITS = {"postgres": 32, "clickhouse": 64, "kafka": 24}
"""Processors of the largest machines for engines: one PostgreSQL, four shards of ClickHouse, three brokers."""
CONNECTIONS, MOST_CONNECTIONS = 60, 2_000
"""Connections that a process may open, and that one PostgreSQL server bears."""
BATCH_EVENTS = IngestionLimits().batch_events
RESTART_S, BROKERS_AWAY_S = 60.0, 30.0
LATE_S = 5.0


def rate(moment_s: float, events: float) -> float:
    """Events a second; the peak is at 0, the mean one in three of it."""
    wave = (0.5 * (1 + math.cos(2 * math.pi * moment_s / DAY_S))) ** 3  # 5/16 of its peak on average
    height = (PEAK - 1) / (1 - 5 / 16)
    return events / DAY_S * (PEAK - height + height * wave)


@dataclass(frozen=True, slots=True)
class Need:
    """Processors of each part at the peak, and the most batches a second."""

    processors: dict[str, float]
    batches: float

    def processes(self, role: str) -> int:
        return max(2, math.ceil(self.processors[role] / BUSY))


def needed(costs: Costs, events: float) -> Need:
    """What the peak of a day takes. Each partition is a small batch now and then, or full ones."""
    peak = rate(0, events)
    batches = max(PARTITIONS / LINGER_S, peak / BATCH_EVENTS)
    runs = peak * RUNS_OF_EVENTS
    names = costs.event.keys() | costs.run.keys()
    return Need(
        {
            name: (
                costs.event.get(name, 0) * peak
                + costs.batch.get(name, 0) * batches
                + costs.run.get(name, 0) * runs
            )
            / 1e6
            for name in sorted(names)
        },
        batches,
    )


def limits(costs: Costs, events: float) -> list[tuple[float, str]]:
    """How many times the events of the day are each part's limit, the nearest first."""
    found = []

    def factor(is_too_much: object, title: str) -> None:
        low, high = 0.01, 1_000.0
        while high / low > 1.01:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if is_too_much(middle) else (middle, high)  # type: ignore[operator]
        found.append((low, title))

    for name, most in LIMITS.items():
        factor(
            lambda times, name=name, most=most: needed(costs, events * times).processors[name] > most * BUSY,
            f"{name}: {most} processors, {BUSY:.0%} of them busy",
        )
    factor(lambda times: processes(needed(costs, events * times)) * CONNECTIONS > MOST_CONNECTIONS,
           f"connections to PostgreSQL: {MOST_CONNECTIONS:,}, when all processes open all of theirs")  # fmt: skip
    hottest = HOT / PARTITIONS
    thread = (costs.event["ingest"] + costs.event["postgres"] + costs.event["clickhouse"]) / 1e6
    factor(lambda times: rate(0, events * times) * hottest * thread > BUSY,
           f"the largest of {PARTITIONS} partitions: one thread, and what it waits for")  # fmt: skip
    factor(lambda times: needed(costs, events * times).processes("ingest") > PARTITIONS,
           f"ingest: as many processes as partitions ({PARTITIONS})")  # fmt: skip
    return sorted(found)


def processes(need: Need) -> int:
    """Those of all roles, with two each of the API and of analysis."""
    return 4 + sum(need.processes(role) for role in ("edge", "ingest", "deliver"))


@dataclass
class Engine:
    """Some processors, each of which does one thing after the other."""

    free: list[float]
    busy_s: float = 0.0

    def done(self, moment: float, seconds: float) -> float:
        """When something is done that comes at a moment."""
        end = max(moment, heapq.heappop(self.free)) + seconds
        heapq.heappush(self.free, end)
        self.busy_s += seconds
        return end


@dataclass
class Partition:
    """Events come at its share of the rate. ``behind_s``: the moment up to which everything is stored."""

    share: float
    behind_s: float
    rests_until: float = -math.inf
    stands_until: float = -math.inf


@dataclass
class Simulation:
    """The minutes around the peak."""

    costs: Costs
    events: float
    ingesting: int
    minutes: float
    postgres: Engine = field(init=False)
    clickhouse: Engine = field(init=False)
    lags: list[tuple[float, float]] = field(default_factory=list)
    """Seconds that the oldest of a batch waited, and how many events it has."""
    late_until: float = 0.0

    def __post_init__(self) -> None:
        self.start, self.end = -self.minutes * 60 / 2, self.minutes * 60 / 2
        self.killed_s, self.away_s = self.start / 2, self.end / 4
        self.postgres = Engine([self.start] * LIMITS["postgres"])
        self.clickhouse = Engine([self.start] * LIMITS["clickhouse"])
        chosen = random.Random(1)
        shares = [chosen.lognormvariate(0, 0.3) for _ in range(PARTITIONS - 1)]
        rest = (1 - HOT / PARTITIONS) / sum(shares)
        self.partitions = [
            Partition(share, self.start) for share in [HOT / PARTITIONS, *(each * rest for each in shares)]
        ]
        self.busy_s = [0.0] * self.ingesting

    def there(self, moment: float) -> float:
        """The moment up to which events that were sent are in the log."""
        return self.away_s if self.away_s < moment < self.away_s + BROKERS_AWAY_S else moment

    def owner(self, number: int, moment: float) -> int:
        """The process that has a partition: of the killed one, others while it is away."""
        mine = number % self.ingesting
        if mine == 0 and self.ingesting > 1 and self.killed_s <= moment < self.killed_s + RESTART_S:
            return 1 + number // self.ingesting % (self.ingesting - 1)
        return mine

    def run(self) -> None:
        """Let each process take batches in turn until the end."""
        waiting = [(self.start + each / 1_000, each) for each in range(self.ingesting)]
        heapq.heapify(waiting)
        turns = [0] * self.ingesting
        while waiting:
            moment, process = heapq.heappop(waiting)
            if moment > self.end:
                continue
            if process == 0 and self.killed_s <= moment < self.killed_s + RESTART_S:
                free_at = moment + LEASE_S + RENEW_EVERY_S  # until another one has taken them
                for each in self.partitions[:: self.ingesting]:
                    each.stands_until = free_at
                heapq.heappush(waiting, (self.killed_s + RESTART_S, process))
                continue
            number = self._next(process, moment, turns[process])
            if number is None:
                heapq.heappush(waiting, (moment + 0.02, process))
                continue
            turns[process] = number + 1
            heapq.heappush(waiting, (self._batch(process, self.partitions[number], moment), process))

    def _next(self, process: int, moment: float, first: int) -> int | None:
        """The next partition of a process in which something is to be done."""
        there = self.there(moment)
        for step in range(PARTITIONS):
            number = (first + step) % PARTITIONS
            each = self.partitions[number]
            if (
                max(each.rests_until, each.stands_until) <= moment
                and each.behind_s < there
                and self.owner(number, moment) == process
            ):
                return number
        return None

    def _batch(self, process: int, partition: Partition, moment: float) -> float:
        """Take a batch through its steps; when it is stored."""
        speed = rate(moment, self.events) * partition.share
        until = min(self.there(moment), partition.behind_s + BATCH_EVENTS / speed)
        events = (until - partition.behind_s) * speed
        cost = {
            name: (self.costs.event[name] * events + self.costs.batch[name]) / 1e6
            for name in ("ingest", "postgres", "clickhouse")
        }
        self.busy_s[process] += cost["ingest"]
        persons = self.postgres.done(moment + cost["ingest"], cost["postgres"])
        stored = self.clickhouse.done(persons, cost["clickhouse"])
        lag = stored - partition.behind_s
        self.lags.append((lag, events))
        if lag > LATE_S:
            self.late_until = stored
        partition.behind_s = until
        if events < BATCH_EVENTS:
            partition.rests_until = moment + LINGER_S
        return stored

    def caught_up_s(self) -> float:
        """Seconds from when the brokers are back until nothing is late any more."""
        return max(0.0, self.late_until - self.away_s - BROKERS_AWAY_S)

    def percentile(self, share: float) -> float:
        """Seconds that so many of the events waited at most."""
        total = sum(events for _, events in self.lags)
        seen = 0.0
        for lag, events in sorted(self.lags):
            seen += events
            if seen >= share * total:
                return lag
        return math.inf


def simulated(costs: Costs, events: float, ingesting: int, minutes: float) -> Simulation:
    made = Simulation(costs, events, ingesting, minutes)
    made.run()
    return made


def report(costs: Costs, events: float, minutes: float) -> None:
    need = needed(costs, events)
    print(
        f"\n{events:,.0f} events a day, {rate(0, events):,.0f} a second at the peak, in {need.batches:,.0f} batches"
    )
    for name, processors in need.processors.items():
        if name in LIMITS:
            print(
                f"  {name:<11} {processors:>6.1f} processors, {processors / LIMITS[name]:>4.0%} of {LIMITS[name]}"
            )
        else:
            print(f"  {name:<11} {processors:>6.1f} processors, so {need.processes(name)} processes")
    print("what is at its limit first, as a multiple of these events:")
    for number, (times, title) in enumerate(limits(costs, events), 1):
        print(f"  {number}. {times:>6.1f}  {title}")
    planned = min(PARTITIONS, need.processes("ingest"))
    print(f"{minutes:g} minutes around the peak; a process killed, and {BROKERS_AWAY_S:g} s without brokers:")
    for ingesting in sorted({max(2, math.ceil(planned * BUSY)), planned, min(PARTITIONS, planned * 2)}):
        made = simulated(costs, events, ingesting, minutes)
        window = made.end - made.start
        print(
            f"  {ingesting:>3} ingest, {sum(made.busy_s) / window / ingesting:>4.0%} busy, postgres "
            f"{made.postgres.busy_s / window / LIMITS['postgres']:>4.0%}, clickhouse "
            f"{made.clickhouse.busy_s / window / LIMITS['clickhouse']:>4.0%}: events wait p50 "
            f"{made.percentile(0.5):.1f} s, p99 {made.percentile(0.99):.1f} s, at most {max(made.lags)[0]:.1f} s; "
            f"more than {LATE_S:g} s until {made.caught_up_s():.0f} s after the brokers are back"
        )


def kept() -> Costs:
    return Costs(**json.loads(KEPT.read_text())["costs"])


def measured() -> Costs:
    batches = 500
    costs, one, two = measure(batches)
    beside = {
        name: sum(each.values()) - each["edge"] - each["ingest"]
        for name, each in (("one", one), ("two", two))
    }
    print(f"{os.cpu_count()} processors, {batches * EVENTS:,} events; load {os.getloadavg()[0]:.1f}")
    print("microseconds of processors for each event, with one process that ingests and with two:")
    for name in one:
        print(f"  {name:<11} {one[name]:>7.1f} {two[name]:>7.1f}   {two[name] / max(one[name], 0.001):.2f}")
    print(f"  engines     {beside['one']:>7.1f} {beside['two']:>7.1f}   {beside['two'] / beside['one']:.2f}")
    KEPT.write_text(
        json.dumps(
            {
                "costs": asdict(costs),
                "one and two processes that ingest, for each event": [one, two],
                "load": os.getloadavg()[0],
                "processors": os.cpu_count(),
            },
            indent=1,
        )
        + "\n"
    )
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="few minutes of the day")
    parser.add_argument("--measure", action="store_true", help="measure the costs anew")
    parser.add_argument("--events", type=float, default=1e9, help="events a day")
    options = parser.parse_args()
    started = perf_counter()
    costs = measured() if options.measure else kept()
    report(costs, options.events, 2 if options.smoke else 40)
    print(f"simulated in {perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
