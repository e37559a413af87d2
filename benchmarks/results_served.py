"""What a server's stored results cost: the first series of a metric, reading it again, and many metrics at once.

Generates millions of events in a data directory (as results_mean_funnel does), starts a server on it and asks over
HTTP: for the 30 daily points of a metric, which are computed and stored; again, which only reads them; for a query
whose answer is kept; and for all metrics of an experiment, with one and with fifty of them, at one moment.
Prints milliseconds, the limits, and the most memory that the server had.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from benchmarks.results_mean_funnel import END, FUNNEL, MEAN, START, generated

KEY = "phx_" + "b" * 43
READ_LIMIT_MS = 20.0
MANY = 50
KINDS = 4
EVENTS = ("purchase", "checkout", "payment")
MANY_LIMIT = 12.0
"""In relation to one metric: the mean of one of each kind."""
MEMORY_LIMIT_MB = 2048.0
READY_S = 300.0
COMPUTED_S = 1800.0


@contextmanager
def serving(directory: Path) -> Iterator[tuple[httpx.Client, int]]:
    """A client of a server on the directory, and the server's process id."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    command = [sys.executable, "-m", "hoglab", "serve", "--data", str(directory), "--port", str(port)]
    process = subprocess.Popen(
        command,
        env={**os.environ, "HOGLAB_BOOTSTRAP_API_KEY": KEY},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    client = httpx.Client(
        base_url=f"http://127.0.0.1:{port}",
        headers={"Authorization": f"Bearer {KEY}"},
        timeout=COMPUTED_S,
    )
    try:
        deadline = time.monotonic() + READY_S
        while not _is_ready(client):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the server did not start")
            time.sleep(0.05)
        yield client, process.pid
    finally:
        client.close()
        process.terminate()
        process.wait(READY_S)


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/_readiness", timeout=1).status_code == 200
    except httpx.TransportError:
        return False


def experiment(client: httpx.Client, metrics: list[dict[str, Any]]) -> dict[str, Any]:
    body = {
        "name": "New checkout",
        "feature_flag_key": "new-checkout",
        "start_date": START.isoformat(),
        "end_date": END.isoformat(),
        "metrics": [{"kind": "ExperimentMetric", **metric} for metric in metrics],
        "exposure_criteria": {"filterTestAccounts": False},
    }
    answer = client.post("/api/projects/1/experiments/", json=body)
    answer.raise_for_status()
    made: dict[str, Any] = answer.json()
    return made


def timed(client: httpx.Client, method: str, path: str, **options: Any) -> tuple[float, dict[str, Any]]:
    """Milliseconds and the answer."""
    started = time.perf_counter()
    answer = client.request(method, path, **options)
    answer.raise_for_status()
    return (time.perf_counter() - started) * 1000, answer.json()


def recalculated_ms(client: httpx.Client, identifier: int) -> float:
    """How long all metrics of an experiment take, as the server itself says."""
    path = f"/api/projects/1/experiments/{identifier}/metrics_recalculation/"
    job = timed(client, "POST", path, json={})[1]
    deadline = time.monotonic() + COMPUTED_S
    while job["status"] not in ("completed", "failed"):
        if time.monotonic() > deadline:
            raise SystemExit("the metrics were not computed in time")
        time.sleep(0.05)
        job = timed(client, "GET", f"{path}{job['id']}/")[1]
    assert job["status"] == "completed", job["metric_errors"]
    return (_moment(job["completed_at"]) - _moment(job["started_at"])) * 1000


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def peak_mb(process_id: int) -> float:
    """The most memory that a process had so far; not a number off Linux."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process_id}/status").read_text())
    except OSError:
        return float("nan")
    return int(found[1]) / 1024 if found else float("nan")


def many(count: int) -> list[dict[str, Any]]:
    """Metrics that all differ: sums, counts, averages and ratios over several events.

    Not funnels: what they cost is to follow the order of each user's events, which no two of them can share.
    """
    found: list[dict[str, Any]] = []
    for number in range(count):
        event = {"kind": "EventsNode", "event": EVENTS[number % len(EVENTS)]}
        amount = {**event, "math": "sum", "math_property": "amount"}
        window = {"conversion_window": 1 + number, "conversion_window_unit": "day"}
        kinds: list[dict[str, Any]] = [
            {"metric_type": "mean", "source": amount},
            {"metric_type": "mean", "source": event, "threshold": 1},
            {"metric_type": "mean", "source": {**amount, "math": "avg"}},
            {"metric_type": "ratio", "numerator": amount, "denominator": event},
        ]
        found.append({**kinds[number % KINDS], **window})
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="few events")
    parser.add_argument("--events", type=int, default=20_000_000)
    options = parser.parse_args()
    events, metrics, reads = (100_000, 5, 5) if options.smoke else (options.events, MANY, 50)
    with tempfile.TemporaryDirectory() as directory:
        with serving(Path(directory)):
            pass  # the files of a directory know each other: the server makes them
        generated(Path(directory) / "events.duckdb", events, position=0).close()
        with serving(Path(directory)) as (client, process_id):
            one = experiment(client, [MEAN, FUNNEL])
            print(f"{events:,} events, 30 daily points; milliseconds")
            for metric in one["metrics"]:
                query = {"metric_uuid": metric["uuid"], "fingerprint": metric["fingerprint"]}
                path = f"/api/projects/1/experiments/{one['id']}/timeseries_results/"
                first, answer = timed(client, "GET", path, params=query)
                assert answer["status"] == "completed", answer["errors"]
                stored = statistics.median(timed(client, "GET", path, params=query)[0] for _ in range(reads))
                kind = metric["metric_type"]
                print(f"{kind:8} first series {first:8.0f}   stored {stored:6.1f}   limit {READ_LIMIT_MS:g}")
            asked = {"kind": "ExperimentQuery", "experiment_id": one["id"], "metric": MEAN}
            computed = timed(client, "POST", "/api/projects/1/query/", json={"query": asked})[0]
            kept = statistics.median(
                timed(client, "POST", "/api/projects/1/query/", json={"query": asked})[0]
                for _ in range(reads)
            )
            print(f"query    computed     {computed:8.0f}   kept   {kept:6.1f}")
            # Ones whose results are not known already, of each kind.
            alone = statistics.mean(
                recalculated_ms(client, experiment_of(client, one["id"], [metric])) for metric in many(KINDS)
            )
            all_ms = recalculated_ms(client, experiment_of(client, one["id"], many(metrics)))
            print(
                f"metrics  one {alone:8.0f}   {metrics} together {all_ms:8.0f}   ratio {all_ms / alone:5.1f}   "
                f"limit {MANY_LIMIT:g}"
            )
            print(f"memory   at most {peak_mb(process_id):.0f} MB   limit {MEMORY_LIMIT_MB:g} MB")
    return 0


def experiment_of(client: httpx.Client, identifier: int, metrics: list[dict[str, Any]]) -> int:
    """The experiment with other metrics."""
    body = {"metrics": [{"kind": "ExperimentMetric", **metric} for metric in metrics]}
    answer = client.patch(f"/api/projects/1/experiments/{identifier}/", json=body)
    answer.raise_for_status()
    return identifier


if __name__ == "__main__":
    sys.exit(main())
