"""What reading, starting, memory and room cost as a server's events and persons grow, and what is not flat.

Fills a data directory with events as browsers send them (784 bytes of JSON each, with a person's properties) and with
a person for every twenty events, seals them as a server does when it is idle, and starts a server at each size. Every
read is asked over HTTP; its cost is the processor time of the server, the least of some tries. An experiment has two
hundredths of the events: the cost of its results is compared with that in a store that holds nothing else.
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from tests.embedded import EmbeddedEventStore

from benchmarks.results_served import serving
from hoglab.storage.database import Database
from hoglab.storage.database.sqlite import person_search

START = datetime(2026, 3, 1, tzinfo=UTC)
SPAN = timedelta(days=90)
EVENTS_PER_PERSON = 20
SIZES = (100_000, 1_000_000, 5_000_000, 20_000_000)
FILL_ROWS = 50_000
"""Events that come in between two looks at what may be sealed."""
FLAT = 3.0
RESULTS_FLAT = 5.0
TRIES = 5
WORN_ROUNDS = 30
WORN_EVENTS = 1_000
REST_S = 20.0
MAX_REST_S = 300.0
IDLE_MS = 50.0
"""Processor time that an idle server takes in a second, at most."""
EVENTS_OF_SOMEBODY = 40
ENGINE_MB = 512
REST_MB = 300

# One event in fifty is of the experiment: of them a third each are exposures, signups and purchases.
EVENTS = """
INSERT INTO events BY NAME
WITH drawn AS (
    SELECT i, (hash(i // 8, 1) % greatest(i // 20, 200))::BIGINT AS person, i // 8 AS session,
        (hash(i, 2) % 100)::BIGINT AS kind, (hash(i, 3) % 1000000007)::BIGINT AS chance,
        TIMESTAMP '2026-03-01' + to_microseconds((i * ($span_us / $total))::BIGINT) AS happened
    FROM range($first::BIGINT, $last::BIGINT) AS numbers(i)
), named AS (
    SELECT *,
        CASE WHEN kind < 2 AND chance % 3 = 0 THEN '$feature_flag_called'
            WHEN kind < 2 AND chance % 3 = 1 THEN 'signed up'
            WHEN kind < 2 THEN 'subscribed' WHEN kind < 42 THEN '$pageview' WHEN kind < 60 THEN '$pageleave'
            WHEN kind < 80 THEN '$autocapture' WHEN kind < 90 THEN 'product added' WHEN kind < 98 THEN 'purchase'
            WHEN kind < 99 THEN 'search' ELSE 'feature ' || chance % 40 END AS name,
        CASE WHEN person % 2 = 0 THEN 'user-' || person ELSE substr(md5(person::VARCHAR), 1, 32) END AS name_of_person,
        md5('s' || session) AS s, md5('d' || person) AS d, md5('w' || session) AS w, person % 5 AS sort
    FROM drawn
), told AS (
    SELECT *,
        '"$os":"' || ['Windows', 'Mac OS X', 'Linux', 'iOS', 'Android'][sort + 1] ||
        '","$os_version":"' || (sort * 3) || '","$browser":"' || ['Chrome', 'Safari', 'Firefox'][person % 3 + 1] ||
        '","$browser_version":' || (120 + person % 7) || ',"$device_type":"Desktop"' ||
        ',"$current_url":"https://shop.example/products/' || chance % 5000 || '","$pathname":"/products/' ||
        chance % 5000 || '","$screen_height":' || (900 + sort * 10) || ',"$screen_width":' || (1600 + sort * 10) ||
        ',"$viewport_height":' || (800 + sort * 10) || ',"$viewport_width":' || (1500 + sort * 10) ||
        ',"$referrer":"https://news.example/","$referring_domain":"news.example"' AS visitor
    FROM named
)
SELECT i + 1 AS seq, 1 AS project_id, md5('u' || i)::UUID AS uuid, name AS event, name_of_person AS distinct_id,
    happened AS timestamp, happened + INTERVAL 1 SECOND AS captured_at, md5('p' || person)::UUID AS person_id,
    TIMESTAMP '2026-02-01' + to_seconds(person::BIGINT) AS person_created_at, 'full' AS person_mode,
    CASE WHEN name = '$feature_flag_called' THEN 'growth' END AS feature_flag,
    CASE WHEN name = '$feature_flag_called' THEN ['control', 'test'][person % 2 + 1] END AS feature_flag_response,
    s AS session_id, 0 AS log_offset, '' AS elements_chain,
    '{' || visitor || ',"$lib":"web","$lib_version":"1.194.1","$host":"shop.example","distinct_id":"' ||
    name_of_person || '","$device_id":"' || d || '","$session_id":"' || s ||
    '","$window_id":"' || w || '","token":"phc_growth","amount":' ||
    chance % 300 || '.5,"$ip":"10.' || person % 250 || '.' || person % 249 || '.1"' ||
    CASE WHEN name = '$feature_flag_called' THEN ',"$feature_flag":"growth","$feature_flag_response":"' ||
        ['control', 'test'][person % 2 + 1] || '"' ELSE '' END ||
    ',"$set":{' || visitor || '},"$set_once":{' || regexp_replace(visitor, '"\\$([a-z_]+":)', '"$initial_\\1', 'g') ||
    '}}' AS properties,
    '{"email":"user' || person || '@example.com","plan":"pro",' || visitor || ',' ||
    regexp_replace(visitor, '"\\$([a-z_]+":)', '"$initial_\\1', 'g') || '}' AS person_properties
FROM told WHERE $every OR kind < 2
"""
SOMEBODY = """
SELECT distinct_id FROM stored_events WHERE starts_with(distinct_id, 'user-') GROUP BY distinct_id
HAVING count(*) = $events ORDER BY count(*) FILTER (place < 0), hash(distinct_id) LIMIT 1
"""
PERSONS = """
WITH RECURSIVE numbers(value) AS (SELECT ? UNION ALL SELECT value + 1 FROM numbers WHERE value < ?)
INSERT INTO person (id, uuid, project_id, properties, is_identified, created_at)
SELECT value + 1, printf('%08x-0000-4000-8000-%012x', value, value), 1,
    json_object('email', 'user' || value || '@example.com', 'name', 'Person ' || value, '$browser', 'Chrome',
        '$initial_current_url', 'https://shop.example/products/' || (value % 5000), '$os', 'Linux', 'plan', 'pro'),
    1, ? + value
FROM numbers
"""
DISTINCT_IDS = """
WITH RECURSIVE numbers(value) AS (SELECT ? UNION ALL SELECT value + 1 FROM numbers WHERE value < ?)
INSERT INTO person_distinct_id (project_id, distinct_id, person_id)
SELECT 1, 'user-' || value, value + 1 FROM numbers
"""

METRICS: dict[str, dict[str, Any]] = {
    "mean": {
        "metric_type": "mean",
        "source": {"kind": "EventsNode", "event": "subscribed", "math": "sum", "math_property": "amount"},
    },
    "funnel": {
        "metric_type": "funnel",
        "series": [{"kind": "EventsNode", "event": name} for name in ("signed up", "subscribed")],
    },
    "retention": {
        "metric_type": "retention",
        "start_event": {"kind": "EventsNode", "event": "signed up"},
        "completion_event": {"kind": "EventsNode", "event": "subscribed"},
        "retention_window_start": 0,
        "retention_window_end": 14,
        "retention_window_unit": "day",
        "start_handling": "first_seen",
    },
}


def installed(directory: Path) -> Path:
    """A new data directory, as a first start leaves it."""
    directory.mkdir()
    with serving(directory):
        pass
    return directory


def fill(directory: Path, first: int, last: int, total: int, *, every: bool = True) -> None:
    """Events ``[first, last)`` of so many; ``every``: not those of the experiment alone."""
    store = EmbeddedEventStore(directory / "events.duckdb")
    with store.reader() as reader:
        for start in range(first, last, FILL_ROWS):
            values = {
                "first": start, "last": min(start + FILL_ROWS, last), "every": every, "total": total,
                "span_us": int(SPAN.total_seconds() * 1e6),
            }  # fmt: skip
            reader.execute(EVENTS, values, timeout_s=3_600)
            reader.execute("UPDATE store_state SET next_seq = $next", {"next": values["last"] + 1})
            seal(store, is_idle=False)
    seal(store, is_idle=True)
    store.close()


def seal(store: EmbeddedEventStore, *, is_idle: bool) -> None:
    """As a server does."""
    while store.seal(is_idle=is_idle):
        store.checkpoint()


def fill_persons(directory: Path, first: int, last: int) -> None:
    with sqlite3.connect(directory / "hoglab.db") as connection:
        born = int((START - timedelta(days=30)).timestamp() * 1e6)
        connection.execute(PERSONS, (first, last - 1, born))
        connection.execute(DISTINCT_IDS, (first, last - 1))
    connection.close()
    database, more = Database.open(directory / "hoglab.db"), True
    while more:  # as a server does by and by
        with database.write() as tx:
            more = person_search.fill(tx.connection)
    database.dispose()


def somebody(directory: Path) -> str:
    """A distinct id that has as many events at every size: sealed ones, as far as there are any."""
    store = EmbeddedEventStore(directory / "events.duckdb")
    try:
        with store.reader() as reader:
            found = reader.execute(SOMEBODY, {"events": EVENTS_OF_SOMEBODY}, timeout_s=600)
            return found[0][0] if found else "user-0"
    finally:
        store.close()


# --- one size


def worn_mb(directory: Path, persons: int) -> Worn:
    """Resident megabytes of a server whose engine has little memory, after many reads of all kinds and new events: at
    rest, and at most."""
    who = somebody(directory)
    os.environ["HOGLAB_EVENT_STORE_MEMORY"] = f"{ENGINE_MB}MB"
    try:
        with serving(directory) as (client, process_id):
            identifier, token = experiment(client), client.get("/api/projects/1/").json()["api_token"]
            for turn in range(WORN_ROUNDS):
                for path, parameters in reads(persons, who).values():
                    get(client, path, parameters)
                for metric in METRICS.values():
                    ask(client, identifier, metric)
                batch = [
                    {
                        "event": f"new {number % 50}",
                        "distinct_id": f"new-{turn}-{number}",
                        "properties": {"n": number},
                    }
                    for number in range(WORN_EVENTS)
                ]
                client.post("/batch/", json={"api_key": token, "batch": batch}).raise_for_status()
            time.sleep(REST_S)  # what came in is sealed meanwhile
            return Worn(
                status_mb(process_id, "RssAnon"), resident_mb(process_id), status_mb(process_id, "VmHWM")
            )
    finally:
        del os.environ["HOGLAB_EVENT_STORE_MEMORY"]


@dataclass(frozen=True)
class Worn:
    """Memory in megabytes after many reads: the process's own, with pages of files, and the most with them.

    Pages of files are mapped by each connection and counted for each, and the system takes them back at any time.
    """

    own: float
    resident: float
    most: float


@dataclass
class Measured:
    """Milliseconds of processor time by read, and other numbers by name."""

    reads: dict[str, float] = field(default_factory=dict)
    results: dict[str, float] = field(default_factory=dict)
    other: dict[str, float] = field(default_factory=dict)


def cpu_ms(process_id: int) -> float:
    """Processor time of all threads of a process so far."""
    found = 0
    for task in Path(f"/proc/{process_id}/task").iterdir():
        found += int((task / "schedstat").read_text().split()[0])
    return found / 1e6


def rest(process_id: int) -> None:
    """Wait until a server has done what it does after its start, such as looking through all rows for damage."""
    deadline = time.monotonic() + MAX_REST_S
    while time.monotonic() < deadline:
        before = cpu_ms(process_id)
        time.sleep(1)
        if cpu_ms(process_id) - before < IDLE_MS:
            return


def least(process_id: int, work: Callable[[], object], tries: int = TRIES) -> float:
    """The least processor time of some tries; other work of the server is in some of them."""
    found = []
    for _ in range(tries):
        before = cpu_ms(process_id)
        work()
        found.append(cpu_ms(process_id) - before)
    return min(found)


def reads(persons: int, who: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """What is asked, by what it is called: a path with its parameters. ``who``: whose events."""
    number = persons // 2 // 2 * 2
    project = "/api/projects/1"
    return {
        "newest events": (f"{project}/events/", {}),
        "events of a frequent name": (f"{project}/events/", {"event": "purchase"}),
        "events of a rare name": (f"{project}/events/", {"event": "feature 7"}),
        "events of a distinct id": (f"{project}/events/", {"distinct_id": who}),
        "one event": (f"{project}/events/{UUID_OF_FIRST}/", {}),
        "persons": (f"{project}/persons/", {}),
        "persons found by email": (f"{project}/persons/", {"search": f"user{number}@exam"}),
        "persons found by name": (f"{project}/persons/", {"search": f"Person {number}"}),
        "persons not found": (f"{project}/persons/", {"search": "nobody at all"}),
        "person of a distinct id": (f"{project}/persons/", {"distinct_id": who}),
        **{
            f"list of {name}": (f"{project}/{name}/", {})
            for name in (
                "experiments",
                "feature_flags",
                "cohorts",
                "hog_functions",
                "actions",
                "activity_log",
            )
        },
    }


UUID_OF_FIRST = "47ad1a8b-d5a8-e2e4-3b5c-4a3f2f1f2d52"  # some event; found or not costs the same


def measure(directory: Path, persons: int) -> Measured:
    """A server's costs on the directory."""
    found, who = Measured(), somebody(directory)
    started = time.perf_counter()
    with serving(directory) as (client, process_id):
        found.other["start s"] = time.perf_counter() - started
        identifier = experiment(client)
        rest(process_id)
        for name, (path, parameters) in reads(persons, who).items():
            found.reads[name] = least(process_id, partial(get, client, path, parameters))
        for name, metric in METRICS.items():
            found.results[name] = least(process_id, partial(ask, client, identifier, metric))
        found.other["memory MB"] = status_mb(process_id, "RssAnon")
        found.other["with pages of files"] = resident_mb(process_id)
        started = time.perf_counter()
        os.kill(process_id, signal.SIGTERM)
    found.other["stop s"] = time.perf_counter() - started
    return found


def experiment(client: httpx.Client) -> int:
    """The experiment of the events; made at the first size."""
    known = client.get("/api/projects/1/experiments/").json()["results"]
    if known:
        return int(known[0]["id"])
    body = {
        "name": "Growth",
        "feature_flag_key": "growth",
        "start_date": START.isoformat(),
        "end_date": (START + SPAN).isoformat(),
        "exposure_criteria": {"filterTestAccounts": False},
    }
    answer = client.post("/api/projects/1/experiments/", json=body)
    answer.raise_for_status()
    return int(answer.json()["id"])


def get(client: httpx.Client, path: str, parameters: dict[str, Any]) -> None:
    answer = client.get(path, params=parameters)
    if answer.status_code not in (200, 404):
        answer.raise_for_status()


def ask(client: httpx.Client, identifier: int, metric: dict[str, Any]) -> None:
    """Have a metric computed from all events."""
    asked = {"kind": "ExperimentQuery", "experiment_id": identifier, "metric": metric}
    body = {"query": asked, "refresh": "force_blocking"}
    client.post("/api/projects/1/query/", json=body).raise_for_status()


def status_mb(process_id: int, name: str) -> float:
    """Megabytes that the system tells of a process under a name, such as ``RssAnon`` or ``VmHWM``."""
    [line] = [each for each in Path(f"/proc/{process_id}/status").read_text().splitlines() if name in each]
    return int(line.split()[1]) * 1024 / 1e6


def resident_mb(process_id: int) -> float:
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def json_bytes(directory: Path) -> float:
    """Bytes of the JSON of an event as it was sent."""
    store = EmbeddedEventStore(directory / "events.duckdb")
    try:
        with store.reader() as reader:
            text = "strlen(regexp_replace(properties, ',\"\\$ip\".*$', '}'))"
            more = "strlen(event) + strlen(distinct_id) + 36 + 32 + 68"
            [(found,)] = reader.execute(f"SELECT avg({text} + {more}) FROM events")  # noqa: S608
            return float(found)
    finally:
        store.close()


# --- all sizes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="few events")
    parser.add_argument("--events", type=int, nargs="+", default=SIZES, help="sizes, ascending")
    options = parser.parse_args()
    sizes = (1_000, 4_000) if options.smoke else tuple(options.events)
    with tempfile.TemporaryDirectory() as folder:
        columns = {f"{size:,}": grown(Path(folder), sizes, place) for place, size in enumerate(sizes)}
        alone = installed(Path(folder) / "alone")
        fill(alone, 0, sizes[-1], sizes[-1], every=False)
        fill_persons(alone, 0, sizes[-1] // EVENTS_PER_PERSON)
        reference = measure(alone, sizes[-1] // EVENTS_PER_PERSON)
        worn = worn_mb(Path(folder) / "all", sizes[-1] // EVENTS_PER_PERSON)
    show(columns, reference)
    limit = 1.2 * ENGINE_MB + REST_MB
    print(
        f"memory after {WORN_ROUNDS} rounds of all reads, with {ENGINE_MB} MB for the engine: {worn.own:.0f} MB, limit "
        f"{limit:.0f} MB; with pages of files {worn.resident:.0f} MB at rest, {worn.most:.0f} MB at most"
    )
    return 0


def grown(folder: Path, sizes: tuple[int, ...], place: int) -> Measured:
    """Fill the directory up to a size, and measure."""
    size, before = sizes[place], sizes[place - 1] if place else 0
    directory = folder / "all" if place else installed(folder / "all")
    started = time.perf_counter()
    fill(directory, before, size, sizes[-1])
    fill_persons(directory, before // EVENTS_PER_PERSON, size // EVENTS_PER_PERSON)
    print(f"{size:,} events are there after {time.perf_counter() - started:.0f} s", flush=True)
    raw = json_bytes(directory)
    found = measure(directory, size // EVENTS_PER_PERSON)
    found.other["bytes of JSON per event"] = raw
    stored = directory / "events.duckdb"
    found.other["bytes per event"] = stored.stat().st_size / size
    found.other["bytes per person"] = (directory / "hoglab.db").stat().st_size / (size // EVENTS_PER_PERSON)
    told = ", ".join(
        f"{name} {value:.1f}"
        for part in (found.reads, found.results, found.other)
        for name, value in part.items()
    )
    print(f"{size:,} events: {told}", flush=True)  # who ends a long run has something of it
    return found


def show(columns: dict[str, Measured], alone: Measured) -> None:
    first, *_, last = columns.values()
    print(f"{'processor ms':<30}" + "".join(f"{name:>14}" for name in columns) + f"{'last/first':>12}")
    steep = []
    for name in first.reads:
        ratio = last.reads[name] / first.reads[name]
        line = "".join(f"{each.reads[name]:14.1f}" for each in columns.values())
        print(f"{name:<30}{line}{ratio:12.1f}")
        if ratio > FLAT:
            steep.append(f"{name}: {ratio:.1f} times, limit {FLAT:g}")
    print(
        f"{'live results, processor ms':<30}"
        + "".join(f"{name:>14}" for name in columns)
        + f"{'alone':>12}{'ratio':>8}"
    )
    for name, cost in alone.results.items():
        ratio = last.results[name] / cost
        line = "".join(f"{each.results[name]:14.1f}" for each in columns.values())
        print(f"{name:<30}{line}{cost:12.1f}{ratio:8.1f}")
        if ratio > RESULTS_FLAT:
            steep.append(f"{name}: {ratio:.1f} times the cost of its events alone, limit {RESULTS_FLAT:g}")
    for name in first.other:
        print(f"{name:<30}" + "".join(f"{each.other[name]:14.1f}" for each in columns.values()))
    print("not flat: " + ("; ".join(steep) or "nothing"))


if __name__ == "__main__":
    sys.exit(main())
