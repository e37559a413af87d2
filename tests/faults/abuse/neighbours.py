"""A well-behaved project that measures how long its work takes, and what an attacker beside it has in hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx
from tests.faults.destination import Destination
from tests.waiting import PATIENCE_S

from hoglab.demo.server import ChildServer

ENGINE_MEMORY = 256 * 1024 * 1024
MAX_RESIDENT = ENGINE_MEMORY * 6 // 5 + 900 * 1024 * 1024
"""Memory of the server under attack: what its engine may have, its own, and the budget for bodies in flight."""
LEAST_TURNS = 20
SCOPES = "query:read,experiment:write,hog_function:write,feature_flag:write"


class Shop:
    """A well-behaved project: what it does, and how long that takes."""

    def __init__(self, server: ChildServer, destination: Destination) -> None:
        self._client = httpx.Client(base_url=server.url, timeout=PATIENCE_S)
        self._key = {"Authorization": f"Bearer {server.api_key}"}
        self._token = server.project_token
        self._destination = destination
        self.seconds: dict[str, list[float]] = {}
        self.sent: dict[str, float] = {}
        metric = {
            "kind": "ExperimentMetric",
            "metric_type": "mean",
            "source": {"kind": "EventsNode", "event": "buy"},
        }
        self.experiment = self.api(
            "POST",
            "experiments/",
            {"name": "Shop", "feature_flag_key": "shop", "start_date": "2026-01-01", "metrics": [metric]},
        )
        self.metric = self.experiment["metrics"][0]
        self.api(
            "POST",
            "hog_functions/",
            {
                "type": "destination",
                "name": "Shop",
                "enabled": True,
                "hog": f"fetch('{destination.url}', {{'body': {{'uuid': event.uuid}}}})",
                "filters": {"events": [{"id": "buy", "type": "events"}]},
            },
        )

    def close(self) -> None:
        self._client.close()

    def api(self, method: str, path: str, body: Any = None) -> Any:
        response = self._client.request(method, f"/api/projects/1/{path}", json=body, headers=self._key)
        assert response.is_success, response.text
        return response.json()

    def _timed(self, name: str, work: Callable[[], Any]) -> Any:
        started_at = time.monotonic()
        done = work()
        self.seconds.setdefault(name, []).append(time.monotonic() - started_at)
        return done

    def flags(self) -> None:
        body = {"token": self._token, "distinct_id": "u"}
        answer = self._timed("flags", lambda: self._client.post("/flags/?v=2", json=body))
        assert answer.status_code == httpx.codes.OK, answer.text
        assert "shop" in answer.json()["flags"]

    def capture(self) -> None:
        event: dict[str, Any] = {
            "event": "buy",
            "distinct_id": "u",
            "uuid": str(uuid.uuid4()),
            "properties": {},
        }
        self.sent[event["uuid"]] = time.monotonic()
        batch = {"api_key": self._token, "batch": [event]}
        answer = self._timed("capture", lambda: self._client.post("/batch/", json=batch))
        assert answer.status_code == httpx.codes.OK, answer.text

    def results(self) -> None:
        query = {"kind": "ExperimentQuery", "experiment_id": self.experiment["id"], "metric": self.metric}
        body = {"query": query, "refresh": "force_blocking"}
        self._timed("results", lambda: self.api("POST", "query/", body))

    def work(self, seconds: float) -> dict[str, float]:
        """Do all of it for so long; the time that 99 of 100 take, for each."""
        self.seconds, self.sent = {}, {}
        arrived: dict[str, float] = {}
        stop = threading.Event()

        def watch() -> None:
            while not stop.wait(0.005):
                for name in self.sent.keys() - arrived.keys():
                    if name in self._destination.bodies:
                        arrived[name] = time.monotonic()

        watching = threading.Thread(target=watch)
        watching.start()
        end = time.monotonic() + seconds
        turn = 0
        try:
            while time.monotonic() < end or turn < LEAST_TURNS:
                self.flags()
                self.capture()
                if turn % 10 == 0:
                    self.results()
                turn += 1
                time.sleep(0.02)
            limit = time.monotonic() + PATIENCE_S
            while len(arrived) < len(self.sent):
                assert time.monotonic() < limit, f"{len(self.sent) - len(arrived)} deliveries did not come"
                time.sleep(0.05)
        finally:
            stop.set()
            watching.join()
        self.seconds["delivery"] = [arrived[name] - at for name, at in self.sent.items()]
        return {work: quantiles(times, n=100)[98] for work, times in self.seconds.items()}


class Resident:
    """The largest memory that a running server was seen to have."""

    def __init__(self, server: ChildServer) -> None:
        assert server._process is not None
        self.most = 0
        self._file = Path(f"/proc/{server._process.pid}/statm")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self.most = max(self.most, int(self._file.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))

    def __enter__(self) -> Resident:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def enemy(server: ChildServer, scopes: str = SCOPES, *, limited: bool = True) -> tuple[str, str, str]:
    """Key, token and id of another project. ``limited``: whether the key reaches that project alone."""
    hoglab = [sys.executable, "-m", "hoglab"]
    data = ("--data", str(server.data))

    def run(*arguments: str) -> str:
        return subprocess.run([*hoglab, *arguments, *data], check=True, capture_output=True, text=True).stdout

    project = json.loads(run("projects", "create", "Enemy", "--json"))
    limits = ("--project", str(project["id"])) if limited else ()
    key = run("keys", "create", "--label", "enemy", "--scopes", scopes, *limits)
    return key.strip(), project["api_token"], str(project["id"])
