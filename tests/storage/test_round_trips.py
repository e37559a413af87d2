"""How often the invocation queue waits for PostgreSQL, which is what a network between the two costs."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import psycopg
import pytest
from tests.postgres import PostgresServer
from tests.storage.engines import PostgresEngine, on_own_database
from tests.storage.test_invocations import invocation, outcome

from hoglab.storage.invocations import (
    ConsumerPosition,
    InvocationBatch,
    InvocationQueue,
    InvocationResult,
    LogEntry,
)
from hoglab.storage.invocations.postgres import PostgresQueueTables

T = TypeVar("T")

LINE = LogEntry(1, "f1", "run", datetime(2026, 1, 5, tzinfo=UTC), "info", "said")


@pytest.fixture
def engine(postgres: PostgresServer) -> Iterator[PostgresEngine]:
    with on_own_database(postgres) as engine:
        yield engine


class Line(threading.Thread):
    """Stands between a client and PostgreSQL, and counts how often the client waited for an answer."""

    def __init__(self, server_socket: str) -> None:
        super().__init__(daemon=True)
        self._target = server_socket
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.turns = 0

    def run(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            threading.Thread(target=self._hand_on, args=(client, server), daemon=True).start()

    def _hand_on(self, client: socket.socket, server: socket.socket) -> None:
        last = server
        with client, server, suppress(OSError):
            while True:
                for source in select.select([client, server], [], [])[0]:
                    if not (data := source.recv(65_536)):
                        return
                    self.turns += source is server and last is client
                    last = source
                    (server if source is client else client).sendall(data)


def test_a_batch_takes_two_round_trips(engine: PostgresEngine) -> None:
    """However much goes with it: logs, metrics, results and the position are sent with the end of the transaction."""
    parameters = psycopg.conninfo.conninfo_to_dict(engine.url)
    line = Line(f"{parameters['host']}/.s.PGSQL.{parameters.get('port', 5432)}")
    line.start()
    behind = f"postgresql://{parameters['user']}@127.0.0.1:{line.port}/{parameters['dbname']}"
    settings = {"sslmode": "disable", "gssencmode": "disable", "options": parameters["options"]}

    def connect() -> psycopg.Connection[Any]:
        return psycopg.connect(behind, autocommit=True, **settings)

    fewest = {"enqueue": 99, "claim": 99, "finish": 99}
    with closing(InvocationQueue(PostgresQueueTables(connect, "the database of a test"))) as queue:

        def counted(name: str, work: Callable[[], T]) -> T:
            before = line.turns
            done = work()
            fewest[name] = min(fewest[name], line.turns - before)
            return done

        for offset in range(5):  # the queue looks around by itself now and then
            batch = InvocationBatch(
                [invocation(), invocation()], position=ConsumerPosition("delivery", offset), logs=[LINE]
            )
            counted("enqueue", partial(queue.enqueue, batch))
            claimed = counted("claim", queue.claim)
            assert len(claimed) == 2
            over = list(map(outcome, claimed))
            results = [
                InvocationResult(each.id, 1, "f1", "succeeded", attempts=1, version=1) for each in claimed
            ]
            assert counted("finish", partial(queue.finish, over, logs=[LINE], results=results))
    assert fewest == {"enqueue": 2, "claim": 2, "finish": 2}
