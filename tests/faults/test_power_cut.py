"""Power cuts at random moments under mixed traffic: what was answered is there, what was revoked stays revoked."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import httpx
import pytest
from tests.conftest import free_port
from tests.faults.power import Power
from tests.generated import SEED
from tests.waiting import PATIENCE_S

from hoglab.demo.server import ChildServer

MOST_KEYS = 25
"""Far below what a user may have, for the workers of two rounds."""
LABEL = "of a worker"
CUTS = int(os.environ.get("HOGLAB_TEST_POWER_CUTS", "5"))
NOT_BEFORE_S, NOT_AFTER_S = 0.0, 1.5
MANAGERS = 2

_GONE = httpx.TransportError


class Manager(threading.Thread):
    """Changes flags and keys of its own; knows for each what it was told, and what it asked for without an answer."""

    def __init__(self, server: ChildServer, number: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.flags: dict[int, set[str]] = {}  # id -> names that it may have
        self.deleted: set[int] = set()
        self.keys: dict[str, str] = {}  # id -> value
        self.revoked: list[str] = []
        self.perhaps: str | None = None  # a key or flag whose change was not answered
        self.wrong: list[str] = []
        self.answers = 0
        self._server = server
        self._dice = random.Random(f"{SEED}:{number}")
        self._stop_now = stop

    def run(self) -> None:
        headers = {"Authorization": f"Bearer {self._server.api_key}"}
        with httpx.Client(base_url=self._server.url, headers=headers, timeout=PATIENCE_S) as client:
            while not self._stop_now.is_set():
                step = self._dice.choice(
                    [self._add, self._rename, self._delete, self._make_key, self._revoke]
                )
                try:
                    step(client)
                except _GONE:
                    self._stop_now.wait(0.02)

    def _send(self, client: httpx.Client, method: str, path: str, body: Any = None) -> Any:
        answer = client.request(method, path, json=body)
        if answer.status_code == 503:
            raise httpx.TransportError(answer.text)
        if answer.is_error:
            self.wrong.append(f"{method} {path}: {answer.status_code} {answer.text}")
        self.answers += 1
        return answer.json() if answer.content else None

    def _add(self, client: httpx.Client) -> None:
        body = {"key": f"flag-{uuid4()}", "name": "new", "filters": {"groups": [{"rollout_percentage": 50}]}}
        made = self._send(client, "POST", "/api/projects/1/feature_flags/", body)
        self.flags[made["id"]] = {"new"}

    def _rename(self, client: httpx.Client) -> None:
        if not self.flags:
            return
        flag, name = self._dice.choice(list(self.flags)), str(uuid4())
        self.flags[flag] = self.flags[flag] | {name}
        self._send(client, "PATCH", f"/api/projects/1/feature_flags/{flag}/", {"name": name})
        self.flags[flag] = {name}

    def _delete(self, client: httpx.Client) -> None:
        if len(self.flags) < 5:
            return
        flag = self._dice.choice(list(self.flags))
        del self.flags[flag]
        self._send(client, "PATCH", f"/api/projects/1/feature_flags/{flag}/", {"deleted": True})
        self.deleted.add(flag)

    def _make_key(self, client: httpx.Client) -> None:
        if len(self.keys) == MOST_KEYS:
            self._revoke(client)
        made = self._send(client, "POST", "/api/personal_api_keys/", {"label": LABEL, "scopes": ["*"]})
        self.keys[made["id"]] = made["value"]

    def _revoke(self, client: httpx.Client) -> None:
        if not self.keys:
            return
        key, value = self._dice.choice(list(self.keys.items()))
        del self.keys[key]
        self._send(client, "DELETE", f"/api/personal_api_keys/{key}/")
        self.revoked.append(value)

    def check(self, client: httpx.Client) -> None:
        for flag, names in self.flags.items():
            answer = client.get(f"/api/projects/1/feature_flags/{flag}/")
            assert answer.status_code == 200, f"flag {flag} is lost"
            assert answer.json()["name"] in names
        for flag in self.deleted:
            assert client.get(f"/api/projects/1/feature_flags/{flag}/").status_code == 404
        for value in self.keys.values():
            answer = client.get("/api/users/@me/", headers={"Authorization": f"Bearer {value}"})
            assert answer.status_code == 200, "a key is lost"
        for value in self.revoked:
            answer = client.get("/api/users/@me/", headers={"Authorization": f"Bearer {value}"})
            assert answer.status_code == 401, "a revoked key works again"


def _delete_keys(client: httpx.Client, kept: set[str]) -> None:
    """Delete the keys of workers that are not checked any more, for a user may not have many."""
    for key in client.get("/api/personal_api_keys/").json():
        if key["label"] == LABEL and key["id"] not in kept:
            assert client.delete(f"/api/personal_api_keys/{key['id']}/").status_code == 204


class Sender(threading.Thread):
    """Sends events, some of which identify persons."""

    def __init__(self, server: ChildServer, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.acknowledged: set[str] = set()
        self._server = server
        self._stop_now = stop

    def run(self) -> None:
        with httpx.Client(base_url=self._server.url, timeout=PATIENCE_S) as client:
            while not self._stop_now.is_set():
                batch = [self._event(number) for number in range(20)]
                try:
                    body = {"api_key": self._server.project_token, "batch": batch}
                    if client.post("/batch/", json=body).status_code == 200:
                        self.acknowledged |= {event["uuid"] for event in batch}
                except _GONE:
                    self._stop_now.wait(0.02)

    def _event(self, number: int) -> dict[str, Any]:
        event = {"uuid": str(uuid4()), "event": "viewed", "distinct_id": f"person-{number}"}
        if number == 0:
            properties = {"$anon_distinct_id": str(uuid4()), "$set": {"seen": number}}
            event |= {"event": "$identify", "properties": properties}
        return event


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(900 + 60 * CUTS)
def test_what_was_answered_outlives_the_power(tmp_path: Path) -> None:
    print(f"HOGLAB_TEST_SEED={SEED}")
    dice = random.Random(SEED)
    data = tmp_path / "data"
    power = Power(data, tmp_path)
    server = ChildServer(
        data=data,
        host="127.0.0.1",
        port=free_port(),
        environment={"HOGLAB_ACCESS_LOG": "false", **power.environment},
    )
    server.start()
    managers: list[Manager] = []
    senders: list[Sender] = []
    try:
        for cut in range(CUTS):
            stop = threading.Event()
            # Those of earlier rounds are checked again after the next cut.
            managers += [Manager(server, cut * MANAGERS + number, stop) for number in range(MANAGERS)]
            senders.append(Sender(server, stop))
            workers: list[threading.Thread] = [*managers[-MANAGERS:], senders[-1]]
            for worker in workers:
                worker.start()
            _wait_for_answers(managers[-MANAGERS:], senders[-1])
            time.sleep(dice.uniform(NOT_BEFORE_S, NOT_AFTER_S))
            server.kill(signal.SIGKILL)
            stop.set()
            for worker in workers:
                worker.join(90)
                assert not worker.is_alive()
            power.cut()
            server.start()
            headers = {"Authorization": f"Bearer {server.api_key}"}
            with httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE_S) as client:
                for manager in managers[-2 * MANAGERS :]:
                    assert manager.wrong == []
                    manager.check(client)
                _delete_keys(client, {key for manager in managers[-MANAGERS:] for key in manager.keys})
        assert sum(manager.answers for manager in managers) > CUTS
        acknowledged = set[str]().union(*[sender.acknowledged for sender in senders])
        _wait_for_events(server, len(acknowledged))
    finally:
        server.close()
    connection = duckdb.connect(str(data / "events.duckdb"), read_only=True)
    stored = [str(uuid) for (uuid,) in connection.execute("SELECT uuid FROM stored_events").fetchall()]
    connection.close()
    assert len(stored) == len(set(stored))
    assert acknowledged
    lost = acknowledged - set(stored)
    assert not lost, f"{len(lost)} of {len(acknowledged)} acknowledged events are lost"


def _wait_for_answers(managers: list[Manager], sender: Sender) -> None:
    """Until there is something that a cut could take back, however slow the machine is."""
    deadline = time.monotonic() + PATIENCE_S
    while not (all(manager.answers for manager in managers) and sender.acknowledged):
        assert time.monotonic() < deadline, f"nothing was answered in {PATIENCE_S} s"
        time.sleep(0.05)


def _wait_for_events(server: ChildServer, count: int) -> None:
    """Until a last event is stored, which comes behind all others."""
    last = str(uuid4())
    headers = {"Authorization": f"Bearer {server.api_key}"}
    deadline = time.monotonic() + PATIENCE_S
    with httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE_S) as client:
        body = {"api_key": server.project_token, "event": "last", "distinct_id": "x", "uuid": last}
        assert client.post("/capture/", json=body).status_code == 200
        while client.get(f"/api/projects/1/events/{last}/").status_code != 200:
            assert time.monotonic() < deadline, f"{count} events were not ingested in {PATIENCE_S} s"
            time.sleep(0.1)
