"""How many experiments are read a second, one by one and by the hundred, beside Django REST Framework.

Starts ``hoglab serve`` and fills it over its API, then serves the very same database with two peers: a minimal
Django REST Framework application (`_drf_experiments`) and hand-written SQL on `sqlite3` with Starlette
(`_raw_experiments`). All three run on Granian with one process, without an access log, and answer with the same
objects, which is checked first. Only hoglab checks keys and projects, stamps metrics with fingerprints, makes entity
tags and counts requests; it remembers what experiments look like until something of them changes. So everything is
measured twice: while nothing changes, and while somebody edits an experiment `EDITS_PER_S` times a second, after which
hoglab must find out each time which of them have changed. Each is driven from this process over keep-alive
connections, in turns.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks._driver import Served, gets, run

KEY = "phx_" + "b" * 43
PATH = "/api/projects/1/experiments/"
EXPERIMENTS = 1000
PAGE = 100
ROUNDS = 5
EDITS_PER_S = 2
GOAL = 8.0
PATIENCE_S = 90.0
DRF, RAW, HOGLAB = "Django REST Framework", "sqlite3 + Starlette", "hoglab"


@contextmanager
def served(command: list[str], environment: Mapping[str, str], ready: str) -> Iterator[Served]:
    """Run a server (``{port}`` in its command stands for a free one) until the block ends."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    program, *arguments = (part.format(port=port) for part in command)
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name(program)), *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(process, f"http://127.0.0.1:{port}{ready}")
        yield Served(port, process.pid)
    finally:
        process.terminate()
        process.wait(20)


def _wait(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    with httpx.Client(headers=_authorization()) as client:
        while True:
            try:
                if client.get(url).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{url} does not answer")
            time.sleep(0.05)


def _authorization() -> dict[str, str]:
    return {"Authorization": f"Bearer {KEY}"}


def hoglab(folder: Path) -> Any:
    environment = {
        "HOGLAB_BOOTSTRAP_API_KEY": KEY,
        "HOGLAB_ACCESS_LOG": "false",
    }
    command = ["hoglab", "serve", "--data", str(folder), "--port", "{port}"]
    return served(command, environment, PATH)


def granian(target: str, interface: str, folder: Path, **environment: str) -> Any:
    command = [
        "granian",
        "--interface",
        interface,
        "--factory",
        "--workers",
        "1",
        "--no-ws",
        "--port",
        "{port}",
    ]
    if interface == "wsgi":
        command += ["--blocking-threads", "1"]
    named = {"BENCHMARK_DATABASE": str(folder / "hoglab.db"), **environment}
    return served([*command, target], named, f"{PATH}?limit=1")


def fill(server: Served, count: int) -> list[int]:
    """Make experiments as people do: metrics, shared metrics, holdouts, some launched; returns their ids."""
    with httpx.Client(base_url=server.url, headers=_authorization(), timeout=30) as client:

        def post(path: str, body: dict[str, Any]) -> int:
            answer = client.post(f"/api/projects/1{path}", json=body)
            answer.raise_for_status()
            return int(answer.json()["id"])

        held_out = [{"properties": [], "rollout_percentage": 5}]
        holdout = post("/experiment_holdouts/", {"name": "Spring", "filters": held_out})
        shared = post("/experiment_saved_metrics/", {"name": "Signups", "query": _mean("signed up")})
        return [post("/experiments/", _experiment(number, holdout, shared)) for number in range(count)]


def _mean(event: str) -> dict[str, Any]:
    source = {"kind": "EventsNode", "event": event, "math": "total"}
    return {"kind": "ExperimentMetric", "metric_type": "mean", "name": event, "source": source}


def _experiment(number: int, holdout: int, shared: int) -> dict[str, Any]:
    steps = [{"kind": "EventsNode", "event": event} for event in ("viewed cart", "paid")]
    funnel = {"kind": "ExperimentMetric", "metric_type": "funnel", "name": "Checkout", "series": steps}
    return {
        "name": f"Experiment {number}",
        "description": "Does the new layout raise orders?",
        "feature_flag_key": f"experiment-{number}",
        "parameters": {"minimum_detectable_effect": 10},
        "metrics": [_mean("purchase"), funnel],
        "metrics_secondary": [_mean("visit")],
        "saved_metrics_ids": [{"id": shared, "metadata": {"type": "secondary"}}],
        "holdout_id": holdout if number % 4 == 0 else None,
        "start_date": "2026-05-01T00:00:00Z" if number % 2 else None,
        "end_date": "2026-06-01T00:00:00Z" if number % 5 == 3 else None,
    }


def check_equal(servers: Mapping[str, Served], ids: list[int]) -> None:
    """All servers answer with the same objects; the peers only lack fingerprints."""
    paths = [f"{PATH}{number}/" for number in ids[:40]] + [f"{PATH}?limit={PAGE}"]
    for path in paths:
        answers = {
            name: _plain(httpx.get(f"{server.url}{path}", headers=_authorization()).json())
            for name, server in servers.items()
        }
        for name, answer in answers.items():
            if answer != answers[HOGLAB]:
                raise RuntimeError(
                    f"{path}: {name} answers otherwise than {HOGLAB}:\n{answer}\n{answers[HOGLAB]}"
                )


def _plain(answer: Any) -> Any:
    if isinstance(answer, list):
        return [_plain(item) for item in answer]
    if isinstance(answer, dict):
        return {key: _plain(value) for key, value in answer.items() if key not in ("fingerprint", "next")}
    return answer


@contextmanager
def edited(server: Served, number: int) -> Iterator[None]:
    """Change an experiment again and again until the block ends."""
    ended = threading.Event()
    failed: list[httpx.HTTPError] = []

    def edit() -> None:
        path = f"{PATH}{number}/"
        with httpx.Client(base_url=server.url, headers=_authorization(), timeout=30) as client:
            turn = 0
            while not ended.wait(1 / EDITS_PER_S):
                turn += 1
                try:
                    client.patch(path, json={"description": f"Edited {turn} times."}).raise_for_status()
                except httpx.HTTPError as error:
                    failed.append(error)
                    return

    editor = threading.Thread(target=edit)
    editor.start()
    try:
        yield
    finally:
        ended.set()
        editor.join()
    if failed:
        raise failed[0]


def measure(
    servers: Mapping[str, Served],
    title: str,
    requests: list[bytes],
    seconds: float,
    rounds: int,
    *,
    goal: bool,
) -> None:
    for server in servers.values():
        run(server, requests, min(seconds, 0.5))  # warm
    measured = [  # in turns, so that what else the machine does hits all of them
        {name: run(server, requests, seconds) for name, server in servers.items()} for _ in range(rounds)
    ]
    print(f"   {title}")
    for name in servers:
        load = max(results[name].load for results in measured)
        cpu_us = min(results[name].cpu_us for results in measured)
        ratio = median(results[name].load.rate / results[DRF].load.rate for results in measured)
        cpu_ratio = median(results[DRF].cpu_us / results[name].cpu_us for results in measured)
        shown = "reference" if name == DRF else f"{ratio:5.1f} x the requests/s, {cpu_ratio:5.1f} x by CPU"
        print(
            f"   {name:<22} {load.rate:7.0f} requests/s   p50 {load.median_ms:6.1f} ms   "
            f"p99 {load.tail_ms:6.1f} ms   {cpu_us:6.0f} us of CPU   {shown}"
        )
    ratio = median(results[HOGLAB].load.rate / results[DRF].load.rate for results in measured)
    print(f"   hoglab / {DRF}: {ratio:.1f} (goal {GOAL:g})" if goal else f"   hoglab / {DRF}: {ratio:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="short runs")
    smoke = parser.parse_args().smoke
    seconds, count, rounds = (0.1, PAGE + 10, 1) if smoke else (2.0, EXPERIMENTS, ROUNDS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            hoglab(folder) as server,
            granian(
                "django.core.wsgi:get_wsgi_application",
                "wsgi",
                folder,
                DJANGO_SETTINGS_MODULE="benchmarks._drf_settings",
            ) as drf,
            granian("benchmarks._raw_experiments:application", "asgi", folder) as raw,
        ):
            ids = fill(server, count)
            servers = {DRF: drf, RAW: raw, HOGLAB: server}
            check_equal(servers, ids)
            ones = gets((f"{PATH}{number}/" for number in ids), _authorization())
            page = gets([f"{PATH}?limit={PAGE}"], _authorization())
            kinds = {"GET one experiment": ones, f"GET a page of {PAGE} of {count}": page}
            for title, requests in kinds.items():
                measure(servers, title, requests, seconds, rounds, goal=True)
            with edited(server, ids[0]):
                for title, requests in kinds.items():
                    title = f"{title}, {EDITS_PER_S} edits a second"
                    measure(servers, title, requests, seconds, rounds, goal=False)


if __name__ == "__main__":
    main()
