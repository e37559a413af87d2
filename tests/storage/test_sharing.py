"""What processes that run functions agree on through PostgreSQL: rate limits, and destinations that are away."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from tests.postgres import PostgresServer

from hoglab.delivery.limits.destination_breaker import FAILURES, DestinationBreakers, OutageWatch
from hoglab.delivery.limits.rate_limit import RateLimiter
from hoglab.storage.database import Database, tables
from hoglab.storage.database.tables import destination_outage, function_pace
from hoglab.storage.engines import upgrade_databases
from hoglab.storage.invocations.sql.sharing import OUTAGE_TOLD_FOR_S, Outages, RateLimits


def _fill(url: str) -> None:
    upgrade_databases(url)


@pytest.fixture
def databases(postgres: PostgresServer) -> Iterator[list[Database]]:
    """One database, as several processes have it open."""
    url = postgres.database(postgres.template("servers", _fill))
    opened = [Database.open(url, tables.queue_metadata) for _ in range(3)]
    yield opened
    for database in opened:
        database.dispose()
    postgres.drop(url)


def test_processes_together_keep_to_the_pace_of_a_function(databases: list[Database]) -> None:
    """As many starts as one bucket lets through, however many processes take them at once."""
    per_s, runs_s = 40.0, 1.5
    limiters = [RateLimiter(lambda _function: per_s, shared=RateLimits(each)) for each in databases]
    begun, started = [0] * len(limiters), time.monotonic()

    def claim(place: int) -> None:
        limiter = limiters[place]
        while time.monotonic() < started + runs_s:
            limiter.look_up()
            number = limiter.allowance("f", 5)
            limiter.began("f", number)
            limiter.settle()
            begun[place] += number
            time.sleep(min(0.02, limiter.wait_s() or 0.0))

    threads = [threading.Thread(target=claim, args=(place,)) for place in range(len(limiters))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took_s = time.monotonic() - started
    assert sum(begun) <= 1 + per_s * took_s
    assert sum(begun) >= 10, "they may all run"


def test_tokens_that_no_run_began_with_go_back(databases: list[Database]) -> None:
    one, other = (RateLimiter(lambda _function: 0.001, shared=RateLimits(each)) for each in databases[:2])
    for limiter in (one, other):
        assert limiter.allowance("f", 3) == 0, "nothing is known of it"
        limiter.look_up()
    assert one.allowance("f", 3) == 1
    assert one.allowance("f", 3) == 1, "within one claim it is the same token"
    one.settle()
    assert other.allowance("f", 3) == 1
    other.began("f", 1)
    other.settle()
    assert one.allowance("f", 3) == 0
    assert (one.wait_s() or 0) > 100
    with databases[0].read() as connection:
        assert connection.scalar(sa.select(function_pace.c.tokens)) < 1


def open_breakers() -> DestinationBreakers:
    breakers = DestinationBreakers()
    for _ in range(FAILURES):
        breakers.note("f", "away:80", 3_600, failed=True)
    return breakers


def test_a_process_that_runs_nothing_knows_whose_destination_is_away(databases: list[Database]) -> None:
    failing, core = open_breakers(), DestinationBreakers()
    tells = OutageWatch(failing, Outages(databases[0]))
    learns = OutageWatch(core, Outages(databases[1]))
    learns.round()
    assert not core.is_open("f")
    tells.round()
    learns.round()
    assert core.is_open("f")
    assert not core.is_open("g")
    assert core.allowed("f", 5) == 5, "each process finds out for itself"
    failing.note("f", "away:80", 3_600, failed=False)
    tells.round()
    learns.round()
    assert not core.is_open("f")


def test_what_a_dead_process_told_is_forgotten(databases: list[Database]) -> None:
    OutageWatch(open_breakers(), Outages(databases[0])).round()
    with databases[1].write() as tx:
        earlier = destination_outage.c.seen_at - int(OUTAGE_TOLD_FOR_S * 1e6)
        tx.execute(sa.update(destination_outage).values(seen_at=earlier))
    assert Outages(databases[1]).told() == frozenset()
