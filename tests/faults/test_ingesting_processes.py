"""Processes that ingest partitions of Kafka come, go, die and are paused under load.

Whatever was acknowledged is stored once and delivered, in the order of each distinct id, and persons are those of one
process that does one thing after the other.
"""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest
from tests.cluster import cluster, send_signal
from tests.faults.test_processes_killed import ROUNDS, Sink, prepare, wait_for
from tests.faults.visitors import SENDERS, Visitor, await_shares, check
from tests.kafka import new_topic
from tests.waiting import PATIENCE_S

from hoglab.storage.event_log.leases import LEASE_S

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(1800)]

PARTITIONS = 8


def test_one_becomes_four_becomes_two_and_they_die_and_are_paused(
    kafka: str, postgres_url: str, events_url: str, tmp_path: Path
) -> None:
    sink, stop = Sink(), threading.Event()
    topic = f"kafka://{kafka}/{new_topic()}?partitions={PARTITIONS}"
    urls = {"HOGLAB_EVENT_LOG_URL": topic, "HOGLAB_EVENT_STORE_URL": events_url}
    with cluster(tmp_path, postgres_url, **urls) as server:
        for role in ("core", "edge", "deliver"):
            server.add(role, role)
        for number in range(1, 5):
            server.add(f"ingest-{number}", "ingest")
        server.start("core", "edge", "deliver", "ingest-1")
        api = server.api()
        prepare(api, sink)
        visitors = [Visitor(server.processes["edge"].url, line, stop) for line in range(SENDERS)]
        for visitor in visitors:
            visitor.start()

        def some_more() -> None:
            before = sum(len(each.sent) for each in visitors)
            wait_for(
                lambda: sum(len(each.sent) for each in visitors) >= before + 60,
                lambda: f"nothing is taken any more: {[each.error for each in visitors]}",
            )

        await_shares(postgres_url, [8])
        some_more()
        server.start("ingest-2", "ingest-3", "ingest-4")
        await_shares(postgres_url, [2, 2, 2, 2])
        some_more()
        server.processes["ingest-3"].kill(signal.SIGKILL)
        server.processes["ingest-4"].stop()
        await_shares(postgres_url, [4, 4])
        for _ in range(ROUNDS):
            some_more()
            send_signal(server.processes["ingest-2"], signal.SIGSTOP)
            time.sleep(LEASE_S)
            await_shares(postgres_url, [8])
            some_more()
            send_signal(server.processes["ingest-2"], signal.SIGCONT)
            await_shares(postgres_url, [4, 4])
            server.processes["ingest-1"].kill(signal.SIGKILL)
            some_more()
            server.start("ingest-1")
            await_shares(postgres_url, [4, 4])
        stop.set()
        for visitor in visitors:
            visitor.join(PATIENCE_S)
            assert visitor.error is None
            assert visitor.wrong == []
        sent = [event for visitor in visitors for event in visitor.sent]
        check(api, sink, sent, events_url, postgres_url, tmp_path)
        for name in ("core", "edge", "ingest-1", "ingest-2", "deliver"):
            assert "Traceback" not in server.processes[name].output(), server.processes[name].output()[-3000:]
        api.close()
    sink.close()
