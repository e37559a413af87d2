"""Ingestion of partitions by several loops, each of which may end, or be paused, between any two steps.

On Apache Kafka, PostgreSQL and ClickHouse's engine. A loop that ends is one whose engines do not answer any more; the
next one has new connections, and knows nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from prometheus_client import REGISTRY
from tests import waiting
from tests.clickhouse import ClickHouseServer
from tests.ingestion.conftest import LIMITS, ONE, event, record
from tests.kafka import new_topic

from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.capture.partitioning import append_record, partition_of
from hoglab.ingestion import IngestedEvent, LogIngestion, Quarantine
from hoglab.ingestion.steps import BatchSteps
from hoglab.people import PersonService
from hoglab.storage.catching_up import CatchUp
from hoglab.storage.database import Database
from hoglab.storage.database.tables import invocation, person, person_distinct_id
from hoglab.storage.directory import DataDirectory
from hoglab.storage.engines import EngineOptions, IngestionEngines, upgrade_databases
from hoglab.storage.event_log import EventLogFullError
from hoglab.storage.event_log.leases import LogLeases
from hoglab.storage.event_log.partitions import PartitionDone
from hoglab.storage.event_log.progress import IngestionProgress, LeasedLog
from hoglab.storage.invocations import InvocationBatch, NewInvocation
from hoglab.storage.table_files import TableDirectory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 4
wait_for = partial(waiting.wait_for, every_s=0.02)
FUNCTION = "01990000-0000-7000-8000-000000000000"


class EndedError(BaseException):
    """What the thread of a loop ends with that has come to the step at which it is to end."""


class Steps:
    """What a loop is to do before its next steps of some names."""

    def __init__(self) -> None:
        self.before: dict[str, Callable[[], None]] = {}
        self.taken: Counter[str] = Counter()

    def reach(self, name: str) -> None:
        self.taken[name] += 1
        self.before.get(name, lambda: None)()


class Watched:
    """An object, before whose methods a loop comes to steps of their names; and behind them to steps ``name!``."""

    def __init__(self, thing: Any, steps: Steps, *names: str) -> None:
        self._thing, self._steps, self._names = thing, steps, names

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._thing, name)
        if name not in self._names:
            return found

        def watched(*args: Any, **kwargs: Any) -> Any:
            self._steps.reach(name)
            result = found(*args, **kwargs)
            self._steps.reach(f"{name}!")
            return result

        return watched


class Enqueuer:
    """A dispatcher that has one function run on every event."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    def position(self) -> int:
        raise AssertionError("partitions have positions of their own")

    def dispatch(
        self, events: Sequence[IngestedEvent], *, log_offset: int | None, done: PartitionDone | None = None
    ) -> None:
        self._queue.enqueue(
            InvocationBatch(
                [
                    NewInvocation(str(each.row.uuid), 1, FUNCTION, b"", log_offset=each.row.log_offset)
                    for each in events
                ],
                position=done,
            )
        )

    def dry_run(self, events: Sequence[IngestedEvent]) -> None:
        pass

    def has_capacity(self) -> bool:
        return True

    def flush(self) -> None:
        pass


class Loop:
    """A loop of ingestion with engines of its own."""

    def __init__(self, options: EngineOptions, folder: Path, *, lease_s: float = 2.0) -> None:
        self.steps = steps = Steps()
        self._opened = opened = ExitStack()
        directory = opened.enter_context(DataDirectory.open(folder, create=True))
        self.engines = engines = opened.enter_context(IngestionEngines.beside(directory, options))
        assert engines.leased is not None
        leases = LogLeases(
            engines.leased.leases._session._connect,  # type: ignore[attr-defined]
            "a test",
            partitions=PARTITIONS,
            lease_s=lease_s,
        )
        opened.callback(leases.close)
        self.leases = leases
        assert engines.shared_store is not None
        self.store = engines.shared_store
        self.log = LeasedLog(engines.leased.source, Watched(leases, steps, "begin"))  # type: ignore[arg-type]
        pipeline = BatchSteps(
            Watched(engines.store, steps, "append"),  # type: ignore[arg-type]
            Watched(PersonService(engines.database), steps, "apply"),  # type: ignore[arg-type]
            AccountService(engines.database).project,
            Quarantine(engines.quarantine),
            dispatcher=Watched(Enqueuer(engines.invocations.queue), steps, "dispatch"),  # type: ignore[arg-type]
            limits=LIMITS,
        )
        partition = engines.store._partition  # type: ignore[attr-defined]
        engines.store._partition = lambda number: Watched(  # type: ignore[attr-defined]
            partition(number), steps, "write", "advance"
        )
        self.ingestion = LogIngestion.shared(self.log, engines.shared_store, pipeline)

    def start(self) -> None:
        self.ingestion.start()

    def ends_before(self, step: str) -> None:
        def end() -> None:
            self.ingestion._keeper._stopping.set()
            raise EndedError

        self.steps.before[step] = end

    def waits_before(self, step: str) -> threading.Event:
        """Have it wait there, its leases running out, until the event is set."""
        go_on = threading.Event()

        def wait() -> None:
            self.ingestion._keeper._stopping.set()
            go_on.wait(120)

        self.steps.before[step] = wait
        return go_on

    def close(self) -> None:
        with suppress(Exception):
            self.ingestion.stop(30)
        self._opened.close()


@pytest.fixture
def options(
    kafka: str, postgres_url: str, clickhouse: ClickHouseServer, tmp_path: Path
) -> Iterator[EngineOptions]:
    upgrade_databases(postgres_url)
    database = Database.open(postgres_url)
    bootstrap(database, AccountService(database), project_token=ONE, api_key="phx_" + "k" * 43)
    database.dispose()
    events = clickhouse.database()
    yield EngineOptions(
        tables=TableDirectory(tmp_path),
        database_url=postgres_url,
        event_store_url=events,
        event_log_url=f"kafka://{kafka}/{new_topic()}?partitions={PARTITIONS}",
    )
    clickhouse.drop(events)


class House:
    """A log, the loops that ingest it, and what came of it."""

    def __init__(self, options: EngineOptions, folder: Path) -> None:
        self._options, self._folder = options, folder
        self.loops: list[Loop] = []
        self.watcher = self.new()  # which ingests nothing
        self.sent: list[dict[str, Any]] = []

    def new(self, **more: Any) -> Loop:
        loop = Loop(self._options, self._folder / f"loop-{len(self.loops)}", **more)
        self.loops.append(loop)
        return loop

    def send(self, *events: dict[str, Any]) -> None:
        """Append a request with events, which get uuids."""
        for each in events:
            self.sent.append(each)
            each["uuid"] = str(UUID(int=len(self.sent)))
        wait_for(lambda: self._is_taken(record(*events)))

    def _is_taken(self, payload: bytes) -> bool:
        """Whether brokers acknowledge a record, which those that have just started may not."""
        try:
            asyncio.run(append_record(self.watcher.log.source, payload))
        except EventLogFullError:
            return False
        return True

    def stored(self) -> list[tuple[str, str, int, int]]:
        """Uuid, distinct id, number of the record and place of all events in the store, by place."""
        return self._read("SELECT uuid, distinct_id, log_offset, seq FROM stored_events ORDER BY seq")

    def _read(self, sql: str) -> list[Any]:
        with self.watcher.store.reader() as reader:
            return reader.execute(sql)

    def is_done(self) -> bool:
        progress = IngestionProgress(LeasedLog(self.watcher.log.source, self.watcher.leases))
        return CatchUp(progress, progress.position).wait(1, timeout_s=1.0)

    def check(self) -> None:
        """Everything that was sent is there once, and has run, in the order of each distinct id."""
        wait_for(self.is_done)
        stored = self.stored()
        assert Counter(uuid for uuid, *_ in stored) == Counter(each["uuid"] for each in self.sent)
        assert len({seq for *_, seq in stored}) == len(stored)
        assert max(seq for *_, seq in stored) <= self.watcher.leases.stored()
        for name in {each["distinct_id"] for each in self.sent}:
            mine = [uuid for uuid, who, *_ in stored if who == name]
            assert mine == [each["uuid"] for each in self.sent if each["distinct_id"] == name]
        with self.watcher.engines.queue_database.read() as connection:
            runs = list(connection.scalars(sa.select(invocation.c.id)))
        assert Counter(runs) == Counter(each["uuid"] for each in self.sent)
        asked = sa.select(person_distinct_id.c.distinct_id, person.c.uuid).join(
            person, person_distinct_id.c.person_id == person.c.id
        )
        with self.watcher.engines.database.read() as connection:
            ids = {name: str(uuid) for name, uuid in connection.execute(asked)}
        for name, person_id in self._read("SELECT DISTINCT distinct_id, person_id FROM resolved_events"):
            assert str(person_id) == ids[name], f"the event store has not heard of the merge of {name}"

    def persons(self) -> dict[frozenset[str], dict[str, Any]]:
        """The properties of persons by their distinct ids."""
        found: dict[int, tuple[set[str], dict[str, Any]]] = {}
        asked = sa.select(person.c.id, person.c.properties, person_distinct_id.c.distinct_id).join(
            person_distinct_id, person_distinct_id.c.person_id == person.c.id
        )
        with self.watcher.engines.database.read() as connection:
            for row_id, properties, name in connection.execute(asked):
                found.setdefault(row_id, (set(), properties))[0].add(name)
        return {frozenset(names): properties for names, properties in found.values()}


@pytest.fixture
def house(options: EngineOptions, tmp_path: Path) -> Iterator[House]:
    house = House(options, tmp_path)
    yield house
    for loop in reversed(house.loops):
        for step in list(loop.steps.before):
            loop.steps.before[step] = lambda: None
        loop.close()


def named(partition: int, number: int = 0) -> str:
    """A distinct id of a partition."""
    names = (f"who-{number}-{each}" for each in range(1_000))
    return next(name for name in names if partition_of(1, name, PARTITIONS) == partition)


def _counted(name: str) -> float:
    """One of the figures of the process, which all loops of the run share."""
    return REGISTRY.get_sample_value(f"hoglab_event_log_{name}") or 0.0


def test_loops_share_partitions_and_what_they_ingest_is_in_order(house: House) -> None:
    first, second = house.new(), house.new()
    for loop in (first, second):
        loop.start()
    wait_for(lambda: [len(loop.ingestion.owned()) for loop in (first, second)] == [2, 2])
    for number in range(5):
        house.send(
            *(event(f"e{number}", named(each), properties={"$set": {"n": number}}) for each in range(4))
        )
    house.send(event("$identify", named(0), properties={"$anon_distinct_id": named(1)}))
    house.check()
    assert first.steps.taken["append"]
    assert second.steps.taken["append"]
    assert _counted("partitions_owned") == 2  # of the loop that was asked last
    assert house.persons() == {
        frozenset({named(0), named(1)}): {"n": 4},
        frozenset({named(2)}): {"n": 4},
        frozenset({named(3)}): {"n": 4},
    }


def test_what_another_loop_stored_meanwhile_is_known(house: House) -> None:
    """A partition comes back, and an SDK sends again what the other one stored."""
    first, second = house.new(), house.new()
    first.start()
    house.send(*(event("before", named(each)) for each in range(4)))
    house.check()
    second.start()
    wait_for(lambda: [len(loop.ingestion.owned()) for loop in (first, second)] == [2, 2])
    [partition, _] = second.ingestion.owned()
    house.send(meanwhile := event("meanwhile", named(partition)))
    house.check()
    assert second.steps.taken["append"]
    second.ingestion.stop(30)
    wait_for(lambda: len(first.ingestion.owned()) == 4)
    asyncio.run(append_record(house.watcher.log.source, record(meanwhile)))
    house.send(event("after", named(partition)))
    house.check()


STEPS = (
    "begin", "begin!", "apply!", "append", "write", "write!", "advance", "advance!", "dispatch", "dispatch!",
)  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_who_takes_over_ends_what_another_began(house: House, step: str) -> None:
    dead = house.new(lease_s=1.0)
    house.send(event("first", named(0), properties={"$set_once": {"first": 1}}), event("b", named(1)))
    dead.start()
    wait_for(house.is_done)
    dead.ends_before(step)
    house.send(
        event("second", named(0)), event("$identify", named(0), properties={"$anon_distinct_id": named(1)})
    )
    house.send(event("third", named(0), properties={"$set": {"n": 3}}), event("third", named(1)))
    wait_for(lambda: not dead.ingestion.is_alive())
    assert dead.steps.taken[step] > 0
    before = _counted("batches_taken_over_total")
    other = house.new()
    other.start()
    house.send(event("fourth", named(0)))
    house.check()
    # What was not begun, or is ended, nobody has to end.
    assert (_counted("batches_taken_over_total") > before) == (step not in ("begin", "dispatch!"))
    assert house.persons() == {frozenset({named(0), named(1)}): {"first": 1, "n": 3}}


@pytest.mark.parametrize("step", STEPS)
def test_a_paused_loop_writes_nothing_when_it_goes_on(house: House, step: str) -> None:
    paused = house.new(lease_s=1.0)
    paused.start()
    house.send(event("first", named(0)))
    wait_for(house.is_done)
    go_on = paused.waits_before(step)
    house.send(*(event("second", named(0), properties={"$set": {"n": number}}) for number in range(3)))
    wait_for(lambda: paused.steps.taken[step] > 1)
    other = house.new()
    other.start()
    house.send(event("third", named(0), properties={"$set": {"n": 10}}))
    wait_for(house.is_done)
    before, fenced = paused.steps.taken.copy(), _counted("fenced_writes_total")
    paused.steps.before.clear()
    go_on.set()
    wait_for(lambda: 0 not in paused.ingestion.owned())
    # It was refused the first time that it wrote into the database: which may have been over.
    assert _counted("fenced_writes_total") - fenced == 1 or step == "dispatch!"
    house.send(event("fourth", named(0)))
    house.check()
    assert house.persons()[frozenset({named(0)})] == {"n": 10}
    # Of what is in the database it has written what it was paused behind, and nothing since.
    for wrote in ("begin!", "apply!", "dispatch!"):
        assert paused.steps.taken[wrote] - before[wrote] == 0, wrote


def test_records_that_cannot_be_processed_are_put_aside_and_come_back(house: House) -> None:
    loop = house.new()
    loop.start()
    log = house.watcher.log.source
    asyncio.run(log.append_all([(2, b"no record")]))
    house.send(event("a", named(2)))
    house.check()
    [kept] = house.watcher.engines.quarantine.page(None, None, 0)
    assert kept.project_id is None
    house.watcher.engines.quarantine.replay(None, None)
    wait_for(
        lambda: (
            [each.offset > kept.offset for each in house.watcher.engines.quarantine.page(None, None, 0)]
            == [True]
        )
    )
    house.check()
