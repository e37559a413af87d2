"""Kill -9 of the whole server under load: nothing acknowledged is lost, nothing is stored twice.

Some events become requests, some become e-mails. Each of them arrives; what arrives again can be recognised.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4
from zlib import crc32

import duckdb
import httpx
import pytest
from tests.conftest import free_port
from tests.delivery.mailbox import ACCEPTED, Mailbox
from tests.faults.destination import Destination
from tests.forked import ForkedServer
from tests.generated import SEED
from tests.waiting import PATIENCE_S

from hoglab.demo.api import Api
from hoglab.demo.server import ChildServer

KILLS = int(os.environ.get("HOGLAB_TEST_KILLS", "5"))
BATCH = 20
SENDERS = 3
NOT_BEFORE_S, NOT_AFTER_S = 0.05, 1.5  # after the server is ready

FORWARD = """\
let r := fetch(inputs.url, {'body': {'uuid': event.uuid}})
if (r.status >= 400) { throw Error(f'answered {r.status}') }
"""


EMAIL = {
    "name": "Confirm orders",
    "template_id": "template-smtp-email",
    "type": "destination",
    "enabled": True,
    "filters": {"events": [{"id": "ordered", "type": "events"}]},
    "inputs": {
        "from": {"value": "shop@example.com"},
        "to": {"value": "ann@example.org"},
        "subject": {"value": "{event.uuid}"},
        "text": {"value": "Thank you"},
    },
}


class LossyMailbox:
    """A mail server that loses its first answer, then one in five: it has the e-mail, and its sender does not know."""

    def __init__(self) -> None:
        self._mailbox = Mailbox()
        self._mailbox.answer = self._answer
        self._seen: set[str] = set()
        self.lost = 0
        self.url = f"{self._mailbox.url}{'&' if '?' in self._mailbox.url else '?'}recipient_an_hour=100000"

    def _answer(self, number: int) -> str:
        message_id = str(self._mailbox.attempts[number].message["Message-ID"])
        is_first = message_id not in self._seen
        self._seen.add(message_id)
        if is_first and (not self.lost or crc32(message_id.encode()) % 5 == 0):
            self.lost += 1
            return self._mailbox.hang_up()
        return ACCEPTED

    def ids(self, *, taken: bool) -> dict[str, set[str]]:
        """The ids of the e-mails that it took, or of all that came, by subject."""
        found: dict[str, set[str]] = {}
        for mail in (self._mailbox.mails if taken else self._mailbox.attempts).copy():
            message = mail.message
            found.setdefault(str(message["Subject"]), set()).add(str(message["Message-ID"]))
        return found

    def __enter__(self) -> LossyMailbox:
        return self

    def __exit__(self, *exc: object) -> None:
        self._mailbox.close()


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
            "event": dice.choices(["viewed", "bought", "ordered"], [20, 7, 1])[0],
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
    server = ForkedServer(
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
@pytest.mark.timeout(900 + 25 * KILLS)
def test_nothing_acknowledged_is_lost_or_doubled(tmp_path: Path) -> None:
    print(f"HOGLAB_TEST_SEED={SEED}")
    dice = random.Random(SEED)
    data = tmp_path / "data"
    with (
        Destination() as destination,
        LossyMailbox() as mailbox,
        killing_server(
            data, {"HOGLAB_FETCH_ALLOW_CIDRS": "127.0.0.1/32", "HOGLAB_SMTP_URL": mailbox.url}
        ) as server,
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
        api.create_hog_function(EMAIL)
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
        ordered = {uuid for uuid, name in acknowledged.items() if name == "ordered"}
        assert len(acknowledged) > KILLS * BATCH

        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if wanted <= destination.bodies.keys() and ordered <= mailbox.ids(taken=True).keys():
                break
            time.sleep(0.1)
        missing = wanted - destination.bodies.keys()
        assert not missing, f"{len(missing)} of {len(wanted)} deliveries are missing"
        # A delivery may be repeated, but then it can be recognised.
        for uuid, keys in destination.bodies.items():
            assert len(set(keys)) == 1, f"{uuid} came under different keys"
        assert function["id"]
        unsent = ordered - mailbox.ids(taken=True).keys()
        assert not unsent, f"{len(unsent)} of {len(ordered)} e-mails are missing"
        assert ordered
        assert mailbox.lost
        for uuid, ids in mailbox.ids(taken=False).items():
            assert len(ids) == 1, f"the e-mail of {uuid} came under different ids"

    assert _failed_runs(data / "queue.db") == []
    stored = _stored(data / "events.duckdb")
    doubled = [uuid for uuid, count in stored.items() if count > 1]
    assert not doubled, f"{len(doubled)} events are stored more than once"
    lost = acknowledged.keys() - stored.keys()
    assert not lost, f"{len(lost)} of {len(acknowledged)} acknowledged events are lost"


def _failed_runs(path: Path) -> list[Any]:
    """What was given up. A run that is not over is in the queue."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute(
            "SELECT invocation_id, status, error_message FROM invocation_result WHERE status NOT IN "
            "('succeeded', 'running') UNION ALL SELECT invocation_id, status, 'not in the queue' "
            "FROM invocation_result WHERE status = 'running' AND invocation_id NOT IN "
            "(SELECT id FROM invocation WHERE status IN ('available', 'running'))"
        ).fetchall()
    finally:
        connection.close()


def _stored(path: Path) -> Counter[str]:
    connection = duckdb.connect(str(path), read_only=True)
    try:
        rows = connection.execute("SELECT CAST(uuid AS VARCHAR) FROM stored_events").fetchall()
    finally:
        connection.close()
    return Counter(row[0] for row in rows)
