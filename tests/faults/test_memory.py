"""After a storm of failing requests and huge answers, the server is no larger than before it."""

from __future__ import annotations

import os

import httpx
import pytest
from aiohttp import web
from tests.conftest import StartServer
from tests.delivery.conftest import Receiver
from tests.waiting import PATIENCE_S, wait_for

from hoglab.demo.api import Api
from hoglab.demo.server import ChildServer

EVENTS = int(os.environ.get("HOGLAB_TEST_STORM", "90"))
WARMING, STORMS = 1, 2
ROOM_BYTES = 32 << 20
"""What the allocator may keep from one storm to the next."""
READINGS = 100
"""Of the size before the storms, of which the least counts."""

CODE = """\
let r := fetch(inputs.url, {'body': event.properties})
if (r.status >= 400) { throw Error(f'answered {r.status}') }
"""


def metric(server: ChildServer, name: str) -> float:
    text = httpx.get(f"{server.url}/metrics", timeout=PATIENCE_S).text
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_storms_leave_nothing_behind(start_server: StartServer) -> None:
    receiver = Receiver()
    huge = "x" * (1 << 20)
    receiver.answer = lambda _request, number: web.Response(status=(500, 200, 200)[number % 3], text=huge)
    try:
        # What is free goes back to the system at once, so that the size tells what is in use.
        allocator = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "0"}
        server = start_server(
            HOGLAB_FETCH_ALLOW_CIDRS="127.0.0.0/8", HOGLAB_DELIVERY_RETRIES="posthog", **allocator
        )
        Api(server.url, server.api_key).create_hog_function(
            {
                "name": "Teller",
                "enabled": True,
                "hog": CODE,
                "inputs_schema": [{"key": "url", "type": "string"}],
                "inputs": {"url": {"value": receiver.url}},
            }
        )
        for number in range(WARMING):
            storm(server, receiver, number)
        # The last answers are given up a moment after their runs were counted as done.
        most = min(size(server) for _ in range(READINGS)) + ROOM_BYTES
        for number in range(WARMING, WARMING + STORMS):
            storm(server, receiver, number)
            wait_for(lambda: size(server) < most)
    finally:
        receiver.close()


def size(server: ChildServer) -> float:
    return metric(server, "process_resident_memory_bytes")


def storm(server: ChildServer, receiver: Receiver, number: int) -> None:
    """Many events whose deliveries fail at first and get large answers, until all are done."""
    batch = [
        {"event": "e", "distinct_id": f"d{n}", "properties": {"n": number * EVENTS + n, "text": "y" * 2_000}}
        for n in range(EVENTS)
    ]
    sent = httpx.post(
        f"{server.url}/batch/", json={"api_key": server.project_token, "batch": batch}, timeout=PATIENCE_S
    )
    assert sent.status_code == 200
    wait_for(lambda: len({hit.json["n"] for hit in list(receiver.hits)}) == (number + 1) * EVENTS)
    wait_for(lambda: metric(server, "hoglab_delivery_backlog") == 0)
