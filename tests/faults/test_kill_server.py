"""Kill -9 of the whole server under load: nothing acknowledged is lost, nothing is stored twice."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import httpx
import pytest
from tests.conftest import free_port
from tests.faults.destination import Destination

from hoglab.demo.api import Api
from hoglab.demo.server import ChildServer

KILLS = int(os.environ.get("HOGLAB_TEST_KILLS", "12"))
SEED = int(os.environ.get("HOGLAB_TEST_SEED", str(random.SystemRandom().randrange(2**32))))
BATCH = 20
SENDERS = 3
SETTLE_S = 60
NOT_BEFORE_S, NOT_AFTER_S = 0.05, 1.5  # after the server is ready

FORWARD = """\
let r := fetch(inputs.url, {'body': {'uuid': event.uuid}})
if (r.status >= 400) { throw Error(f'answered {r.status}') }
"""


class Sender(threading.Thread):
    """Sends batches as an SDK does: a batch without an answer is sent again, unchanged, until it has one."""

    def __init__(self, server: ChildServer, number: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[str, str] = {}  # uuid -> event name
        self.refused: list[str] = []
        self._server = server
        self._number = number
        self._stop_now = stop

    def run(self) -> None:
        dice = random.Random(f"{SEED}:{self._number}")
        with httpx.Client(base_url=self._server.url, timeout=10) as client:
            while not self._stop_now.is_set():
                events = [self._event(dice) for _ in range(BATCH)]
                body = gzip.compress(
                    json.dumps({"api_key": self._server.project_token, "batch": events}).encode()
                )
                if self._send(client, body):
                    self.acknowledged |= {event["uuid"]: event["event"] for event in events}

    def _event(self, dice: random.Random) -> dict[str, Any]:
        person = f"person-{dice.randrange(200)}"
        return {
            "uuid": str(uuid4()),
            "event": dice.choice(["viewed", "viewed", "viewed", "bought"]),
            "distinct_id": person,
            "timestamp": "2026-01-01T00:00:00Z",
            "properties": {"$set": {"seen": dice.randrange(1000)}, "sender": self._number},
        }

    def _send(self, client: httpx.Client, body: bytes) -> bool:
        """Whether the batch was acknowledged; False when the test ended first."""
        while True:
            try:
                answer = client.post("/batch/", content=body, headers={"Content-Encoding": "gzip"})
            except httpx.TransportError:
                if self._stop_now.wait(0.02):
                    return False
                continue
            if answer.status_code == 200:
                return True
            if answer.status_code != 503:
                self.refused.append(f"{answer.status_code} {answer.text}")
                return False


@contextmanager
def killing_server(path: Path, environment: dict[str, str]) -> Iterator[ChildServer]:
    server = ChildServer(
        data=path,
        host="127.0.0.1",
        port=free_port(),
        environment={"HOGLAB_ACCESS_LOG": "false", **environment},
    )
    server.start()
    try:
        yield server
    finally:
        server.close()


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(240 + 25 * KILLS)
def test_nothing_acknowledged_is_lost_or_doubled(tmp_path: Path) -> None:
    print(f"HOGLAB_TEST_SEED={SEED}")
    dice = random.Random(SEED)
    data = tmp_path / "data"
    with (
        Destination() as destination,
        killing_server(data, {"HOGLAB_FETCH_ALLOW_CIDRS": "127.0.0.1/32"}) as server,
    ):
        api = Api(server.url, server.api_key)
        function = api.create_hog_function(
            {
                "name": "Forward purchases",
                "enabled": True,
                "hog": FORWARD,
                "inputs_schema": [{"key": "url", "type": "string", "required": True}],
                "inputs": {"url": {"value": destination.url}},
                "filters": {"events": [{"id": "bought", "type": "events"}]},
            }
        )
        stop = threading.Event()
        senders = [Sender(server, number, stop) for number in range(SENDERS)]
        for sender in senders:
            sender.start()
        for _ in range(KILLS):
            time.sleep(dice.uniform(NOT_BEFORE_S, NOT_AFTER_S))
            server.kill(signal.SIGKILL)
            server.start()  # a start after a kill needs no repair by hand
        time.sleep(0.5)
        stop.set()
        for sender in senders:
            sender.join(30)
            assert not sender.is_alive()
            assert sender.refused == []
        acknowledged = {uuid: name for sender in senders for uuid, name in sender.acknowledged.items()}
        wanted = {uuid for uuid, name in acknowledged.items() if name == "bought"}
        assert len(acknowledged) > KILLS * BATCH

        deadline = time.monotonic() + SETTLE_S
        while not wanted <= destination.bodies.keys() and time.monotonic() < deadline:
            time.sleep(0.1)
        missing = wanted - destination.bodies.keys()
        assert not missing, f"{len(missing)} of {len(wanted)} deliveries are missing"
        # A delivery may be repeated, but then it can be recognised.
        for uuid, keys in destination.bodies.items():
            assert len(set(keys)) == 1, f"{uuid} came under different keys"
        assert function["id"]

    stored = _stored(data / "events.duckdb")
    doubled = [uuid for uuid, count in stored.items() if count > 1]
    assert not doubled, f"{len(doubled)} events are stored more than once"
    lost = acknowledged.keys() - stored.keys()
    assert not lost, f"{len(lost)} of {len(acknowledged)} acknowledged events are lost"


def _stored(path: Path) -> Counter[str]:
    connection = duckdb.connect(str(path), read_only=True)
    try:
        rows = connection.execute("SELECT CAST(uuid AS VARCHAR) FROM events").fetchall()
    finally:
        connection.close()
    return Counter(row[0] for row in rows)
