"""Bodies in processes of their own: what dies with one, and what does not (spec: hog-runtime 4.1, 4.9)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest
from prometheus_client import Gauge
from tests.contract.rules import rule
from tests.delivery.conftest import House, Receiver, stored
from tests.waiting import wait_for

from hoglab.delivery.bodies import child
from hoglab.delivery.bodies.child import BodyLimits, Child, Work
from hoglab.delivery.bodies.pool import BodyPool, Compute
from hoglab.delivery.bodies.protocol import TurnOutcome
from hoglab.delivery.bodies.transforming import TransformationProcess

GLOBALS = orjson.dumps({"event": {"uuid": "e", "event": "x", "distinct_id": "d", "properties": {}}})


def work(source: str, function_id: str = "f", **more: Any) -> Work:
    return Work(str(uuid4()), function_id, source, GLOBALS, orjson.dumps(more), now=1_767_261_600.0)


def value(outcome: TurnOutcome) -> Any:
    assert outcome.error is None
    return None if outcome.value is None else orjson.loads(outcome.value)


class Together:
    """Submits bodies at once and collects what comes of them, in the order in which it comes."""

    def __init__(self, pool: BodyPool) -> None:
        self.pool = pool
        self.outcomes: list[tuple[str, TurnOutcome]] = []
        self.errors: list[BaseException] = []
        self._wanted = 0

    def add(self, name: str, one: Work) -> None:
        def done(outcome: Any, error: BaseException | None) -> None:
            if error is not None:
                self.errors.append(error)
            else:
                self.outcomes.append((name, outcome))

        def job() -> Compute[TurnOutcome]:
            return Compute(one, lambda outcome: outcome)

        self._wanted += 1
        self.pool.submit(job, done, function_id=one.function_id, suspended=one.suspended)

    def wait(self) -> dict[str, TurnOutcome]:
        wait_for(lambda: len(self.outcomes) + len(self.errors) == self._wanted)
        assert self.errors == []
        return dict(self.outcomes)


@pytest.fixture
def pool() -> Iterator[BodyPool]:
    pool = BodyPool(BodyLimits(grace_s=0.2, idle_s=30))
    yield pool
    pool.close(1.0)


def test_nothing_is_started_before_the_first_body_and_a_spare_after_it(pool: BodyPool) -> None:
    assert pool.processes() == []
    assert value(pool.compute(work("return event.event"))) == "x"
    assert len(pool.processes()) == 2
    pool.close(1.0)
    with pytest.raises(RuntimeError):
        pool.compute(work("return 1"))


def test_after_a_while_without_work_only_the_spare_is_left() -> None:
    pool = BodyPool(BodyLimits(idle_s=0.05))
    try:
        for number in range(2):
            assert value(pool.compute(work("return inputs", inputs=number))) == number
            wait_for(lambda: len(pool.processes()) == 1)
    finally:
        pool.close(1.0)


def test_processes_of_all_kinds_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Gauge("running", "Processes.", registry=None)
    monkeypatch.setattr(child, "PROCESSES", running)

    def count() -> float:
        return next(iter(running.collect())).samples[0].value

    pool, transforming = BodyPool(BodyLimits(processes=1)), TransformationProcess()
    assert count() == 0
    pool.compute(work("return 1"))
    wait_for(lambda: count() == 2)  # it and the spare one
    assert [run.error for run in transforming.run("f", "return event", b"{}", [GLOBALS])] == [None]
    assert count() == 3
    os.kill(pool.processes()[0], signal.SIGKILL)
    pool.compute(work("return 1"))
    wait_for(lambda: count() == 3)
    transforming.close()
    assert count() == 2
    pool.close(1.0)
    assert count() == 0


def test_a_process_knows_nothing_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOGLAB_SECRET_KEYS", "s3cret")
    pool = BodyPool()
    try:
        pool.compute(work("return 1"))
        for process in pool.processes():
            place = Path(f"/proc/{process}")
            if not place.exists():
                pytest.skip("there is no /proc here")
            assert b"s3cret" not in (place / "environ").read_bytes()
            opened = [str(one.readlink()) for one in (place / "fd").iterdir()]
            assert not any(one.startswith("anon_inode") for one in opened)
            assert sum(one.startswith("socket:") for one in opened) == 1
    finally:
        pool.close(1.0)


def test_a_process_imports_the_language_and_little_else() -> None:
    code = (
        "import sys, hoglab.delivery.bodies.process\n"
        "heavy = ['sqlalchemy', 'aiohttp', 'duckdb', 'pydantic', 'starlette', 'asyncio', 'numpy', 'cryptography']\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_a_program_waits_alive_and_goes_on(pool: BodyPool) -> None:
    one = work("let n := 1 let r := fetch('a', {'n': n}) return [n, r]")
    first = pool.compute(one)
    assert (first.call, orjson.loads(first.args)) == ("fetch", ["a", {"n": 1}])
    assert one.suspended is not None
    one.journal, one.answer = None, b'{"status": 200}'  # no journal: it can only go on where it waits
    assert value(pool.compute(one)) == [1, {"status": 200}]


@pytest.mark.parametrize("forgotten", [True, False])
def test_a_program_whose_process_is_gone_comes_back_by_its_journal(pool: BodyPool, forgotten: bool) -> None:
    one = work("print('a') let id := generateUUIDv4() let r := fetch(id) print('b') return [id, r]")
    first = pool.compute(one)
    assert one.suspended is not None
    if forgotten:
        BodyPool.forget(one.suspended)
    else:
        one.suspended.child.kill()
    one.journal, one.answer = first.journal, b"7"
    second = pool.compute(one)
    assert value(second) == [orjson.loads(first.args)[0], 7]
    assert (first.lines, second.lines) == (["a"], ["b"])


@pytest.mark.parametrize(
    "source",
    [
        "while (true) {}",
        "fn f(n) { return f(n + 1) } return f(0)",
        "let a := [] while (true) { a := arrayPushBack(a, concat('some text of its own ', length(a))) }",
        "let s := 'x' while (true) { s := concat(s, s) }",
        "let a := [1] while (true) { a := [a, a, a] }",
        "while (true) { try { throw Error('again') } catch { } }",
        "while (true) { print(range(3000)) }",
        "let x := 3 while (true) { x := x * x }",
    ],
)
@rule("H5.6")
def test_hostile_bodies_end_with_an_error_and_the_pool_goes_on(pool: BodyPool, source: str) -> None:
    outcome = pool.compute(work(source))
    assert outcome.error is not None
    assert outcome.error.startswith(("Execution timed out", "Memory limit", "Call stack exceeded"))
    assert not outcome.crashed
    assert value(pool.compute(work("return 1", "other"))) == 1


def test_a_dying_process_takes_no_neighbour_with_it(pool: BodyPool) -> None:
    """Many runs share a process; the one that it dies of ends alone, the others are run again."""
    pool.compute(work("return 0", "good"))
    together = Together(pool)
    for number in range(40):
        together.add(f"good {number}", work("return inputs", "good", inputs=number))
    outcomes = together.wait()
    victim = pool.processes()[0]
    assert [value(outcomes[f"good {number}"]) for number in range(40)] == list(range(40))
    together = Together(pool)
    for number in range(200):
        together.add(f"good {number}", work("return inputs", "good", inputs=number))
    os.kill(victim, signal.SIGKILL)
    outcomes = together.wait()
    assert [value(outcomes[f"good {number}"]) for number in range(200)] == list(range(200))


@rule("H5.7")
def test_a_process_past_its_deadline_is_ended_and_replaced() -> None:
    """The wall outside of the language's own limit: here it stands before it, so that it is reached."""
    pool = BodyPool(BodyLimits(grace_s=-0.8))
    try:
        pool.compute(work("return 0"))
        before = pool.processes()
        outcome = pool.compute(work("while (true) {}", "bad"))
        assert outcome.error == "Execution timed out after 1 seconds."
        assert not outcome.crashed
        assert value(pool.compute(work("return 2"))) == 2
        assert len(set(before) - set(pool.processes())) == 1
    finally:
        pool.close(1.0)


def test_a_body_that_kills_its_process_again_and_again_is_given_up(pool: BodyPool) -> None:
    pool.compute(work("return 0"))
    over = threading.Event()

    def killer() -> None:
        while not over.is_set():
            for slot in pool._slots:
                child = slot.child
                if slot.busy_since is not None and child is not None and child.ready:
                    child.kill()
            time.sleep(0.01)

    thread = threading.Thread(target=killer)
    bad = work("while (true) {}", "bad")
    thread.start()
    try:
        outcome = pool.compute(bad)
    finally:
        over.set()
        thread.join()
    assert outcome.crashed
    assert outcome.error == "The process that ran the function ended unexpectedly, 3 times in a row."
    assert value(pool.compute(work("return 3", "good"))) == 3


def in_one_message(pool: BodyPool, works: dict[str, Work]) -> Together:
    """Bodies of a function that is known to be quick, in a pool with one process."""
    pool.compute(work("return 0", "quick"))
    gate, together = threading.Event(), Together(pool)
    pool.submit(lambda: gate.wait(60), lambda _value, _error: None, function_id="quick")
    for name, one in works.items():
        together.add(name, one)
    gate.set()
    return together


def test_answers_do_not_wait_for_a_body_that_takes_long() -> None:
    pool = BodyPool(BodyLimits(processes=1, time_s=600))
    try:
        works = {f"good {number}": work("return 1", "quick") for number in range(5)}
        together = in_one_message(pool, {**works, "endless": work("while (true) {}", "quick")})
        wait_for(lambda: len(together.outcomes) == 5)
        assert [name for name, _ in together.outcomes] == list(works)
    finally:
        pool.close(0.1)


def test_a_process_that_dies_before_it_has_answered_blames_the_one_it_was_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = "import hoglab.delivery.bodies.answers as answers\nanswers.KEPT_S = 600\n"
    (tmp_path / "sitecustomize.py").write_text(patience)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    pool = BodyPool(BodyLimits(processes=1, time_s=1.0, grace_s=-0.8))
    try:
        works = {f"good {number}": work("return inputs", "quick", inputs=number) for number in range(8)}
        works["bad"] = work("while (true) {}", "quick")
        works |= {f"late {number}": work("return inputs", "quick", inputs=number) for number in range(8)}
        outcomes = in_one_message(pool, works).wait()
    finally:
        pool.close(1.0)
    assert outcomes.pop("bad").error == "Execution timed out after 1 seconds."
    assert {name: value(outcome) for name, outcome in outcomes.items()} == {
        f"{kind} {number}": number for kind in ("good", "late") for number in range(8)
    }


SLOW = "let i := 0 while (i < 3000000) { i := i + 1 }"
"""Ten times as long as what counts as slow, so that a fast machine finds it slow, too."""


def serve_quick_ones(pool: BodyPool) -> None:
    together = Together(pool)
    for number in range(50):
        together.add(f"quick {number}", work("return 1", "quick"))
    together.wait()


@rule("H9.3")
def test_slow_functions_leave_a_process_to_the_others(pool: BodyPool) -> None:
    """While jobs of a slow function do not end at all, quick ones are served."""
    pool.compute(work("return 0", "quick"))
    pool.compute(work(SLOW, "slow"))
    gate = threading.Event()
    try:
        for _ in range(4):
            pool.submit(lambda: gate.wait(60), lambda _value, _error: None, function_id="slow")
        serve_quick_ones(pool)
    finally:
        gate.set()


def test_functions_whose_jobs_compute_long_in_the_server_leave_a_process_to_the_others(
    pool: BodyPool,
) -> None:
    """As those whose bodies do: their inputs, say."""
    pool.compute(work("return 0", "quick"))

    def slow() -> None:
        started = time.thread_time()
        while time.thread_time() - started < 0.03:
            pass

    pool.compute(work("return 0", "slow inputs"))
    for _ in range(3):
        pool.call(slow, "slow inputs")
    gate = threading.Event()
    try:
        pool.submit(lambda: gate.wait(60), lambda _value, _error: None, function_id="first")
        pool.submit(lambda: gate.wait(60), lambda _value, _error: None, function_id="slow inputs")
        serve_quick_ones(pool)
    finally:
        gate.set()


def test_another_process_joins_when_one_does_not_keep_up(pool: BodyPool) -> None:
    pool.compute(work("return 0", "quick"))
    begun, gate = threading.Event(), threading.Event()

    def hold_up() -> None:
        begun.set()
        gate.wait(60)

    try:
        pool.submit(hold_up, lambda _value, _error: None, function_id="quick")
        assert begun.wait(60)
        serve_quick_ones(pool)
    finally:
        gate.set()


def test_slow_functions_take_turns(pool: BodyPool) -> None:
    together = Together(pool)
    pool.compute(work(SLOW, "flood"))
    pool.compute(work(SLOW, "single"))
    gate = threading.Event()
    pool.submit(lambda: gate.wait(60), lambda _value, _error: None, function_id="first")
    for number in range(10):
        together.add(f"flood {number}", work(SLOW, "flood"))
    together.add("single", work(SLOW, "single"))
    gate.set()
    together.wait()
    assert [name for name, _ in together.outcomes].index("single") <= 1


@rule("H9.4")
def test_a_flood_of_quick_bodies_is_shared_out_by_function() -> None:
    """Who comes last with one run does not wait for the whole line of another function."""
    pool = BodyPool(BodyLimits(processes=1, batch=4))
    try:
        for name in ("flood", "single"):
            pool.compute(work("return 1", name))
        together = Together(pool)
        blocker = threading.Event()
        pool.submit(lambda: blocker.wait(10), lambda _value, _error: None, function_id="single")
        for number in range(100):
            together.add(f"flood {number}", work("return 1", "flood"))
        together.add("single", work("return 1", "single"))
        blocker.set()
        together.wait()
        assert [name for name, _ in together.outcomes].index("single") < 8
    finally:
        pool.close(1.0)


@pytest.mark.parametrize(
    ("limits", "company", "most"),
    [({"BATCH_S": 0.0}, False, 1), ({"BATCH_BYTES": 100}, False, 1), ({}, False, 8), ({}, True, 2)],
)
def test_a_message_holds_so_many_runs_and_so_much_to_compute(
    monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any], company: bool, most: int
) -> None:
    """Fewer while another function has work, too: its next event would find them ahead of it."""
    for name, limit in limits.items():
        monkeypatch.setattr(f"hoglab.delivery.bodies.pool.{name}", limit)
    sizes: list[int] = []

    def send(self: Child, works: Sequence[Work], really: Any = Child.send) -> list[int]:
        sizes.append(len(works))
        return list(really(self, works))

    pool = BodyPool(BodyLimits(processes=1, batch=8, batch_shared=2))
    gate = threading.Event()
    try:
        if company:
            pool.compute(work("return 1", "single"))
        pool.compute(work("return 1", "quick"))
        pool.submit(lambda: gate.wait(60), lambda _value, _error: None, function_id="quick")
        together = Together(pool)
        for number in range(20):
            together.add(f"quick {number}", work("return 1", "quick"))
        monkeypatch.setattr(Child, "send", send)
        gate.set()
        together.wait()
    finally:
        gate.set()
        pool.close(1.0)
    assert sum(sizes) == 20
    assert max(sizes) == most


def test_what_nobody_has_seen_run_goes_in_groups_once_somebody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def send(self: Child, works: Sequence[Work], really: Any = Child.send) -> list[int]:
        sizes.append(len(works))
        return list(really(self, works))

    pool = BodyPool(BodyLimits(processes=1, batch=8, batch_shared=8))
    gate = threading.Event()
    try:
        pool.compute(work("return 1", "known"))
        pool.submit(lambda: gate.wait(60), lambda _value, _error: None, function_id="known")
        together = Together(pool)
        monkeypatch.setattr(Child, "send", send)
        for number in range(17):
            together.add(f"new {number}", work("return 1", "new"))
        gate.set()
        outcomes = together.wait()
    finally:
        gate.set()
        pool.close(1.0)
    assert [value(outcomes[f"new {number}"]) for number in range(17)] == [1] * 17
    assert sizes == [1, 8, 8]


def test_large_answers_and_many_at_once(pool: BodyPool) -> None:
    together = Together(pool)
    text = "x" * 1_000_000
    for number in range(12):
        together.add(str(number), work("return inputs", "large", inputs=text))
    assert all(value(outcome) == text for outcome in together.wait().values())


def test_what_was_given_to_a_job_is_gone_when_the_job_is(pool: BodyPool) -> None:
    """The answer of a destination may be 2 MiB, and a thread may wait long for its next jobs."""

    class Large:
        def job(self) -> str:
            return "done"

    large = Large()
    gone = weakref.ref(large)
    ended = threading.Event()
    pool.submit(large.job, lambda _value, _error: ended.set(), function_id="f")
    del large
    assert ended.wait(10)
    wait_for(lambda: gone() is None)


def test_a_process_that_cannot_start_holds_up_but_fails_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No room for a process is the machine's trouble, not that of the runs that wait."""
    pool = BodyPool(BodyLimits(processes=1))
    monkeypatch.setattr("hoglab.delivery.bodies.pool.RESTART_S", 0.01)
    monkeypatch.setattr("sys.executable", "/bin/false")
    together = Together(pool)
    together.add("one", work("return 1"))
    try:
        wait_for(lambda: pool.starts_failed >= 2)
        assert together.outcomes == []
        monkeypatch.undo()
        assert value(together.wait()["one"]) == 1
    finally:
        pool.close(1.0)


# --- through the whole engine


@rule("H4.4")
def test_a_killed_process_costs_no_delivery(house: House, receiver: Receiver) -> None:
    house.create("fetch(inputs.url, {'body': event.uuid})", values={"url": receiver.url})
    assert house.bodies is not None
    events = [stored() for _ in range(60)]
    house.dispatch(*events)
    house.delivery.start()
    wait_for(lambda: len(receiver.hits) >= 5)
    for process in house.bodies.processes():
        os.kill(process, signal.SIGKILL)
    house.wait_idle()
    assert {result["status"] for result in house.results()} == {"succeeded"}
    keys: dict[bytes, set[str]] = {}
    for hit in receiver.hits:
        keys.setdefault(hit.body, set()).add(hit.headers["idempotency-key"])
    assert len(keys) == 60
    assert all(len(names) == 1 for names in keys.values())


def test_texts_that_cannot_be_written_are_mended(house: House) -> None:
    """A program can cut a text inside a character, which no database takes."""
    function = house.create(
        "print(substring('\U0001f600x', 1, 1)) throw Error(substring('\U0001f600x', 1, 1))"
    )
    house.run(stored())
    levels = [level for level, _ in house.logs(function)]
    assert levels == ["info", "error"]
    assert house.results()[0]["error_message"] == "Error('?')"
