"""Killed at any moment, the server loses nothing that it acknowledged and stores nothing twice."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from hoglab.people import derived_person_id

KILLS = 8
CLIENTS = 3
TOKEN = "phc_first_project"
SERVER = "tests.ingestion.killed_server"

pytestmark = [pytest.mark.faults, pytest.mark.slow]


class Clients:
    """Threads that send batches like SDKs: the same batch again until it is acknowledged."""

    def __init__(self) -> None:
        self.port = 0
        self.stopping = threading.Event()
        self.acknowledged: set[UUID] = set()
        self.identified: set[int] = set()
        self.resent = 0
        self._users = itertools.count()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(CLIENTS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join(30)

    def _run(self) -> None:
        while not self.stopping.is_set():
            user = next(self._users)
            events = journey(user)
            body = json.dumps({"api_key": TOKEN, "batch": events}).encode()
            while not self.stopping.is_set():
                if self._post(body):
                    self.acknowledged.update(UUID(event["uuid"]) for event in events)
                    self.identified.add(user)
                    break
                self.resent += 1
                self.stopping.wait(0.02)

    def _post(self, body: bytes) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("POST", "/batch/", body=body)
            return connection.getresponse().status == 200
        return False


def journey(user: int) -> list[dict[str, Any]]:
    """What one user does: anonymous at first, then identified; twenty events, the same whenever asked."""
    anonymous, known = f"anon-{user}", f"user-{user}"
    names = [anonymous] * 8 + [known] * 12
    events: list[dict[str, Any]] = [
        {"event": "step", "distinct_id": name, "uuid": str(UUID(int=user * 1000 + index + 1))}
        for index, name in enumerate(names)
    ]
    events[8] |= {"event": "$identify", "properties": {"$anon_distinct_id": anonymous, "$set": {"last": 8}}}
    events[3] |= {"properties": {"$set": {"last": 3, "first": 3}}}
    events[15] |= {"properties": {"$set": {"last": 15}}}
    return events


@contextlib.contextmanager
def server(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command, root = [sys.executable, "-m", SERVER, str(folder)], Path(__file__).parents[2]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert line, "the server did not start"
        yield process, int(line)
    finally:
        process.kill()
        process.wait(20)
        if process.stdout:
            process.stdout.close()


def test_kill_9_under_load(house: Any) -> None:
    house.close()  # the files belong to the server for now
    clients = Clients()
    random_ = random.Random(20261121)
    for kill in range(KILLS):
        with server(house.folder) as (_, port):
            clients.port = port
            if kill == 0:
                clients.start()
            moment = time.monotonic() + random_.uniform(0.1, 1.2)
            while time.monotonic() < moment:
                assert not clients.stopping.wait(0.01)
    clients.stop()
    assert len(clients.acknowledged) > 500
    assert clients.resent > KILLS
    house.open()
    house.run()  # what the last kill left in the log

    stored = Counter(house.rows("uuid"))
    assert set(stored.values()) == {1}
    assert clients.acknowledged <= stored.keys()
    assert house.quarantine.records() == []
    for user in clients.identified:
        survivor = derived_person_id(1, f"anon-{user}")
        for name in (f"anon-{user}", f"user-{user}"):
            view = house.people.person_for(1, name)
            assert (view.uuid, view.is_identified) == (survivor, True)
            assert view.properties == {"first": 3, "last": 15}
    owners = house.rows("regexp_extract(distinct_id, '[0-9]+')::INTEGER, person_id")
    by_user: dict[int, set[UUID]] = {}
    for user, person in owners:
        by_user.setdefault(user, set()).add(person)
    assert all(by_user[user] == {derived_person_id(1, f"anon-{user}")} for user in clients.identified)
