"""Leases of partitions: shares, take-over, and that a process which lost one writes nothing."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest
from tests import waiting
from tests.postgres import PostgresServer
from tests.storage.engines import PostgresEngine, on_own_database
from tests.waiting import PATIENCE_S

from hoglab.storage.database.tables import consumer_position
from hoglab.storage.event_log.leases import LogInUseError, LogLeases, finish_within, share_of
from hoglab.storage.event_log.partitions import LeaseLostError, LeaseRound, PartitionDone, PartitionLease

LEASE_S = 4.0


wait_for = partial(waiting.wait_for, timeout_s=PATIENCE_S, every_s=0.02)


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[PostgresEngine]:
    with on_own_database(postgres) as engine:
        yield engine


@pytest.fixture
def reader(database: PostgresEngine) -> Iterator[Callable[..., LogLeases]]:
    made: list[LogLeases] = []

    def new(lease_s: float = 600.0, partitions: int = 4) -> LogLeases:
        leases = LogLeases(database.connect, "a test", partitions=partitions, lease_s=lease_s)
        made.append(leases)
        return leases

    yield new
    for leases in made:
        leases.close()


def settled(*readers: LogLeases) -> list[list[int]]:
    """What each has once all gave up what is too much and took what was free."""
    for _ in range(2):
        for each in readers:
            each.give_up(each.renew().surplus)
    return [sorted(each.renew().owned) for each in readers]


def move(leases: LogLeases, lease: PartitionLease, position: int) -> None:
    leases.finish(PartitionDone(lease, position))


class TestShares:
    def test_all_partitions_are_someones_and_nobody_has_two_more_than_another(self) -> None:
        for partitions in range(1, 20):
            for count in range(1, 8):
                readers = [f"r{number}" for number in range(count)]
                shares = [share_of(each, readers, partitions) for each in readers]
                assert sum(shares) == partitions
                assert max(shares) - min(shares) <= 1

    def test_one_reader_has_all(self, reader: Callable[..., LogLeases]) -> None:
        assert settled(reader()) == [[0, 1, 2, 3]]

    def test_who_comes_gets_a_share_and_who_leaves_gives_it_back(
        self, reader: Callable[..., LogLeases]
    ) -> None:
        readers = [reader() for _ in range(4)]
        assert settled(readers[0]) == [[0, 1, 2, 3]]
        assert sorted(map(len, settled(*readers))) == [1, 1, 1, 1]
        for each in readers[2:]:
            each.leave()
        held = settled(*readers[:2])
        assert sorted(held[0] + held[1]) == [0, 1, 2, 3]
        assert len(held[0]) == 2

    def test_what_is_in_surplus_is_still_ones_own_until_it_is_given_up(
        self, reader: Callable[..., LogLeases]
    ) -> None:
        first, second = reader(), reader()
        first.renew()
        assert second.renew() == LeaseRound({}, [])
        held, surplus = first.renew()
        assert len(surplus) == 2
        move(first, held[surplus[0]], 7)
        assert second.renew().owned == {}
        first.give_up(surplus)
        assert sorted(second.renew().owned) == list(surplus)
        assert second.positions()[surplus[0]] == 7


class TestFencing:
    def test_who_lost_a_lease_writes_nothing(self, reader: Callable[..., LogLeases]) -> None:
        paused, other = reader(lease_s=0.0), reader()
        lease = paused.renew().owned[0]
        move(paused, lease, 5)
        wait_for(lambda: 0 in other.renew().owned)
        with pytest.raises(LeaseLostError, match="partition 0"):
            move(paused, lease, 6)
        with pytest.raises(LeaseLostError):
            paused.begin(lease, 6, 1)
        assert paused.open_batch(lease) is None
        assert other.positions()[0] == 5

    def test_a_lease_that_ran_out_is_good_until_somebody_takes_it(
        self, reader: Callable[..., LogLeases]
    ) -> None:
        slow = reader(lease_s=0.0)
        lease = slow.renew().owned[0]
        assert slow.renew().owned[0] == lease
        move(slow, lease, 5)

    def test_taking_it_again_is_another_epoch(self, reader: Callable[..., LogLeases]) -> None:
        leases = reader()
        before = leases.renew().owned[0]
        leases.give_up([0])
        after = leases.renew().owned[0]
        assert after.epoch > before.epoch
        with pytest.raises(LeaseLostError):
            move(leases, before, 5)

    def test_nobody_takes_a_partition_while_its_owner_writes(
        self, reader: Callable[..., LogLeases], database: PostgresEngine
    ) -> None:
        owner, other = reader(lease_s=0.0, partitions=1), reader(partitions=1)
        lease = owner.renew().owned[0]
        with database.connect() as connection:
            with connection.transaction():
                finish_within(connection, PartitionDone(lease, 1))
                assert other.renew().owned == {}
            wait_for(lambda: 0 in other.renew().owned)
            with pytest.raises(LeaseLostError), connection.transaction():
                finish_within(connection, PartitionDone(lease, 2))

    def test_nobody_takes_a_partition_while_persons_are_written_of_it(
        self, reader: Callable[..., LogLeases], database: PostgresEngine
    ) -> None:
        owner, other = reader(lease_s=0.0, partitions=1), reader(partitions=1)
        lease = owner.renew().owned[0]
        with database.database.write() as tx:
            owner.fence(tx.connection, lease)
            assert other.renew().owned == {}
        wait_for(lambda: 0 in other.renew().owned)
        with pytest.raises(LeaseLostError), database.database.write() as tx:
            owner.fence(tx.connection, lease)


class TestNumbers:
    """Of records, in one count for all partitions."""

    def test_of_batches_do_not_overlap_and_rise_with_their_offsets(
        self, reader: Callable[..., LogLeases]
    ) -> None:
        leases = reader()
        held = leases.renew().owned
        move(leases, held[0], 10)
        first = leases.begin(held[0], 13, 1)  # three offsets
        second = leases.begin(held[1], 2, 50)  # as many numbers as events
        third = leases.begin(held[2], 1, 1)
        assert [11 + first.sequence_offset, 13 + first.sequence_offset] == [1, 3]
        assert 1 + second.sequence_offset == 4
        assert 1 + third.sequence_offset == 54
        assert leases.last_sequence() == 54

    def test_a_batch_that_was_begun_is_ended_by_whoever_takes_over(
        self, reader: Callable[..., LogLeases]
    ) -> None:
        dead, other = reader(lease_s=0.0), reader()
        batch = dead.begin(dead.renew().owned[0], 7, 3)
        lease = wait_for(lambda: other.renew().owned.get(0))
        assert other.open_batch(lease) == batch
        move(other, lease, 4)  # a part of it
        assert other.open_batch(lease) == batch
        move(other, lease, 7)
        assert other.open_batch(lease) is None

    def test_everything_is_done_up_to_the_first_batch_that_is_not(
        self, reader: Callable[..., LogLeases]
    ) -> None:
        leases = reader()
        held = leases.renew().owned
        assert leases.stored() == 0
        leases.begin(held[0], 5, 1)
        leases.begin(held[1], 5, 1)
        assert leases.stored() == 0
        move(leases, held[1], 5)
        assert leases.stored() == 0
        move(leases, held[0], 3)
        assert leases.stored() == 3
        move(leases, held[0], 5)
        assert leases.stored() == 10
        leases.advance_sequence(100)
        assert leases.stored() == 100
        assert 1 + leases.begin(held[2], 1, 1).sequence_offset == 101


class TestFormerLog:
    """In the database, before there were partitions."""

    def test_is_ended_when_everything_in_it_was_ingested(
        self, reader: Callable[..., LogLeases], database: PostgresEngine
    ) -> None:
        leases, log = reader(), database.log()
        leases.replace_log()
        offset = asyncio.run(log.append(b"accepted"))
        with pytest.raises(LogInUseError, match=r"1 records wait .* HOGLAB_EVENT_LOG_URL"):
            leases.replace_log()
        log.commit("ingestion", offset)
        log.commit("dispatch-starts", 1 << 62)
        leases.replace_log()
        leases.replace_log()
        assert [row.consumer for row in database.rows(consumer_position)] == ["dispatch-starts"]
        assert 1 + leases.begin(leases.renew().owned[0], 1, 1).sequence_offset == offset + 1
        log.close()


class Holder:
    """A process of `tests.storage.lease_holder`."""

    def __init__(self, url: str, partitions: int, records: int, log: Path) -> None:
        self._log = log
        root = Path(__file__).parents[2]
        command = [
            sys.executable,
            "-m",
            "tests.storage.lease_holder",
            url,
            str(partitions),
            str(LEASE_S),
            str(records),
        ]
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=root)

    @property
    def lines(self) -> list[str]:
        return self._log.read_text().splitlines()

    def holds(self) -> int:
        """How many partitions it has, as far as it said."""
        said = [line.split()[1:] for line in self.lines if line.startswith("holds")]
        assert self.process.poll() is None, self._log.read_text()
        return len(said[-1]) if said else 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.slow
@pytest.mark.faults
class TestProcesses:
    """Several processes, each record of which is a row; at the end each is there once, and in order."""

    @pytest.fixture
    def start(self, database: PostgresEngine, tmp_path: Path) -> Iterator[Callable[[], Holder]]:
        with database.connect() as connection:
            connection.execute(
                "CREATE TABLE done (partition int, id int, epoch bigint, at serial, PRIMARY KEY (partition, id))"
            )
        holders: list[Holder] = []

        def start(partitions: int = 8, records: int = 400) -> Holder:
            holders.append(Holder(database.url, partitions, records, tmp_path / f"holder-{len(holders)}"))
            return holders[-1]

        yield start
        for each in holders:
            each.process.send_signal(signal.SIGCONT)
            each.kill()

    @staticmethod
    def rows(database: PostgresEngine) -> list[tuple[int, int, int]]:
        with database.connect() as connection:
            rows = connection.execute("SELECT partition, id, epoch FROM done ORDER BY at").fetchall()
        return [(partition, offset, epoch) for partition, offset, epoch in rows]

    def check(self, database: PostgresEngine, partitions: int, records: int) -> None:
        wait_for(lambda: len(self.rows(database)) >= partitions * records)
        rows = self.rows(database)
        assert len(rows) == partitions * records
        for partition in range(partitions):
            mine = [(offset, epoch) for number, offset, epoch in rows if number == partition]
            assert [offset for offset, _ in mine] == list(range(1, records + 1))
            assert [epoch for _, epoch in mine] == sorted(epoch for _, epoch in mine)

    def test_a_killed_process_is_replaced_and_a_paused_one_writes_nothing(
        self, database: PostgresEngine, start: Callable[..., Holder]
    ) -> None:
        holders = [start() for _ in range(3)]
        wait_for(
            lambda: sum(each.holds() for each in holders) == 8 and min(each.holds() for each in holders) > 0
        )
        for _ in range(3):
            victim = holders.pop(0)
            victim.kill()
            holders.append(start())
            wait_for(lambda: sum(each.holds() for each in holders) == 8)
        zombie = holders.pop(0)
        had = zombie.holds()
        assert had > 0
        zombie.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: sum(each.holds() for each in holders) == 8)
        zombie.process.send_signal(signal.SIGCONT)
        wait_for(
            lambda: zombie.holds() > 0 and zombie.lines[-1].startswith("holds")
        )  # it is given a share again
        self.check(database, 8, 400)

    def test_one_becomes_four_becomes_two(
        self, database: PostgresEngine, start: Callable[..., Holder]
    ) -> None:
        holders = [start()]
        wait_for(lambda: holders[0].holds() == 8)
        holders += [start() for _ in range(3)]
        wait_for(lambda: [each.holds() for each in holders] == [2, 2, 2, 2])
        for each in holders[2:]:
            each.kill()
        wait_for(lambda: [each.holds() for each in holders[:2]] == [4, 4])
        self.check(database, 8, 400)


def test_a_partition_of_a_killed_process_is_taken_when_its_lease_is_over(
    database: PostgresEngine, reader: Callable[..., LogLeases]
) -> None:
    """By the clock of the database, which is the only one that counts."""
    dead, other = reader(lease_s=LEASE_S), reader()
    dead.renew()
    with psycopg.connect(database.url, autocommit=True) as connection:
        due = partial(connection.execute, "SELECT max(expires_at) FROM log_lease")
        expires_at = due().fetchone()
        wait_for(lambda: len(other.renew().owned) == 4)
        taken = connection.execute(
            "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        ).fetchone()
    assert expires_at is not None
    assert taken is not None
    assert taken[0] >= expires_at[0]
