"""The file of the aggregate cache has no write-ahead log: what a process that is killed loses of it, and what never."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest
from tests.analysis.events import Event
from tests.analysis.test_against_oracle import CHECKOUT, PURCHASE, START, Bench, funnel
from tests.analysis.test_state import (
    REVENUE,
    Experiment,
    Stateful,
    assert_same_points,
    engine,
    experiment,
    plain,
)

from hoglab.analysis.query.model import Question
from hoglab.storage.event_store import duckdb as store_module
from hoglab.storage.event_store.aggregate_cache_file import ROW_GROUP_ROWS

__all__ = ["engine", "experiment"]  # fixtures

ROOT = Path(__file__).parents[2]
FILE = "aggregate-cache.duckdb"


def purchases(users: range, hours: int, amount: int = 7) -> list[Event]:
    return [
        Event(f"user-{user}", START + timedelta(hours=hours, seconds=user), "purchase", {"amount": amount})
        for user in users
    ]


def killed_now(engine: Stateful, path: Path) -> Stateful:
    """The directory as a process leaves it that is killed now, opened by the next one."""
    path.mkdir()
    for file in engine.path.glob("*.duckdb*"):
        if file.is_file():
            shutil.copy(file, path / file.name)
    return Stateful(path)


def unwritten(engine: Stateful) -> int:
    state = engine.store._file.cache
    assert state is not None
    return state.unwritten_bytes(engine.store._file.connection)


def written_blocks(engine: Stateful) -> int:
    with engine.store.reader() as reader:
        sizes = "SELECT used_blocks FROM pragma_database_size() WHERE database_name = 'aggregate_cache'"
        [(blocks,)] = reader.execute(sizes)
    return int(blocks)


def test_there_is_no_write_ahead_log(experiment: Experiment) -> None:
    assert unwritten(experiment.engine) > 0
    assert not list(experiment.engine.path.glob(f"{FILE}.wal"))


def test_what_a_killed_process_had_not_written_is_made_again(experiment: Experiment, tmp_path: Path) -> None:
    engine, question = experiment.engine, experiment.ask(REVENUE)
    with engine.store.reader() as reader:
        reader.execute("CHECKPOINT aggregate_cache")
    engine.add(purchases(range(10), 30), project_id=experiment.project)
    assert experiment.cost(question).events == 2 * 10
    experiment.engine = killed_now(engine, tmp_path / "next")
    work = experiment.cost(question)
    assert (work.events, work.entities, work.rebuilt) == (2 * 10, 10, False)
    experiment.engine.close()


def test_an_idle_writer_writes_what_changed(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, question = experiment.engine, experiment.ask(REVENUE)
    before = unwritten(engine)
    monkeypatch.setattr(store_module, "IDLE_CHECKPOINT_BYTES", before + 1)
    engine.store.checkpoint()
    assert unwritten(engine) == before  # too little to be worth it
    monkeypatch.setattr(store_module, "IDLE_CHECKPOINT_BYTES", before)
    engine.store.checkpoint()
    assert unwritten(engine) == 0
    experiment.engine = killed_now(engine, tmp_path / "next")
    assert experiment.cost(question).events == 0
    experiment.engine.close()


def test_an_idle_writer_does_not_wait_for_a_computation(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = experiment.engine
    monkeypatch.setattr(store_module, "IDLE_CHECKPOINT_BYTES", 1)
    with engine.store.reader() as reader:
        reader.execute("BEGIN TRANSACTION")
        reader.execute("UPDATE aggregate_cache.about SET seq = seq")
        engine.store.checkpoint()
        reader.execute("ROLLBACK")
    assert unwritten(engine) > 0
    assert experiment.cost(experiment.ask(REVENUE)).rebuilt is False


def test_nothing_is_written_while_the_disk_is_nearly_full(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = experiment.engine
    monkeypatch.setattr(store_module, "IDLE_CHECKPOINT_BYTES", 1)
    before = unwritten(engine)
    monkeypatch.setattr(engine.store, "_min_free_disk_bytes", 1 << 60)
    engine.store.checkpoint()
    assert unwritten(engine) == before


def test_a_write_ahead_log_of_an_earlier_version_is_taken_over(
    experiment: Experiment, tmp_path: Path
) -> None:
    engine, question = experiment.engine, experiment.ask(REVENUE)
    engine.close()
    path = engine.path / FILE
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{path}' AS aggregate_cache")
        connection.execute("UPDATE aggregate_cache.contributions SET used = 17")
        before = tmp_path / "before"
        before.mkdir()
        for file in engine.path.glob("*.duckdb*"):
            if file.is_file():
                shutil.copy(file, before / file.name)
    assert (before / f"{FILE}.wal").stat().st_size > 0
    experiment.engine = Stateful(before)
    with experiment.engine.store.reader() as reader:
        assert reader.execute("SELECT DISTINCT used FROM aggregate_cache.contributions") == [(17,)]
    assert experiment.cost(question).events == 0
    experiment.engine.add(purchases(range(3), 30), project_id=experiment.project)
    assert experiment.cost(question).events == 2 * 3
    experiment.engine.close()
    assert not (before / f"{FILE}.wal").exists()


def test_rows_that_fit_a_row_group_wait_for_a_checkpoint(experiment: Experiment) -> None:
    engine, question = experiment.engine, experiment.ask(REVENUE)
    for rows, waits in ((ROW_GROUP_ROWS - 1000, True), (ROW_GROUP_ROWS + 1000, False)):
        with engine.store.reader() as reader:
            reader.execute("CHECKPOINT aggregate_cache")
            reader.execute(
                "INSERT INTO events BY NAME SELECT e.* REPLACE (s.next_seq + i AS seq, uuid() AS uuid, "
                "e.timestamp + to_microseconds(86400000000 + i) AS timestamp) "
                "FROM (SELECT * FROM events WHERE event = 'purchase' LIMIT 1) AS e, store_state AS s, "
                "range($rows) AS numbers(i)",
                {"rows": rows},
            )
            reader.execute("UPDATE store_state SET next_seq = next_seq + $rows", {"rows": rows})
        before = written_blocks(engine)
        work = experiment.cost(question)
        assert (work.entities, work.rebuilt) == (1, False)
        assert (written_blocks(engine) == before) is waits


WORKER = """
import random
import sys
from pathlib import Path
from hoglab.storage.event_store import duckdb as store_module
from tests.analysis.test_state import Stateful, assert_same_points
from tests.analysis.test_state_file import purchases, questions_of

store_module.IDLE_CHECKPOINT_BYTES = 1
engine = Stateful(Path(sys.argv[1]))
chance = random.Random(sys.argv[2])
questions = questions_of(engine)
engine.stateful.points(questions[0])
print("caught up", engine.state.last.events, flush=True)
for question in questions:
    assert_same_points(engine, question, "after a kill")
while True:
    some = chance.randrange(36)
    events = purchases(range(some, some + 5), chance.randrange(1, 100), chance.randrange(100))
    engine.add(events, project_id=questions[0].exposures.project_id)
    for question in questions:
        engine.stateful.points(question)
    print("step", 0, flush=True)
    engine.store.checkpoint()
"""
METRICS = [REVENUE, funnel(PURCHASE, CHECKOUT)]


def questions_of(engine: Stateful) -> list[Question]:
    """Questions of the first project that an `Experiment` makes in a store."""
    bench = Bench(engine)
    first = bench.project + 1
    asked = [bench.ask(plain(), [], metric) for metric in METRICS]
    return [replace(each, exposures=replace(each.exposures, project_id=first)) for each in asked]


@pytest.mark.faults
@pytest.mark.slow
def test_killed_again_and_again_it_stays_whole(tmp_path: Path) -> None:
    engine = Stateful(tmp_path)
    first = Experiment(engine)
    for question in questions_of(engine):
        assert_same_points(engine, question, "first")
    stored = first.stored
    engine.close()
    chance = random.Random(5)
    for turn in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path), str(turn)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        ) as worker:
            assert worker.stdout is not None
            *word, events = worker.stdout.readline().split()
            assert word == ["caught", "up"]
            assert int(events) < stored  # not begun anew
            for _ in range(chance.randrange(2, 12)):
                assert worker.stdout.readline() == "step 0\n"
            time.sleep(chance.random() * 0.05)  # it is about at its checkpoint
            worker.kill()
    engine.open()
    for question in questions_of(engine):
        assert_same_points(engine, question, "at the end")
    engine.close()
