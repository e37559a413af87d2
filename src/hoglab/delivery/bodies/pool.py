"""The processes that run bodies, and the threads that feed them.

Each thread has a process of its own. It takes some jobs, computes their parts that belong into the server (inputs,
states), sends the rest as one message, and continues with each answer as it arrives. Nothing is started before it
is needed; from the first job on, a spare process is kept warm, so that one that dies is replaced at once.

As few threads as possible work: another one joins only where one does not keep up. Threads that take turns at small
jobs spend more time on waiting for the interpreter than on the jobs.

Functions take turns, so that one with many jobs delays none of the others. Functions whose bodies or inputs take
long, and functions that have not run yet, are served apart: one at a time, and never by all of the processes.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import thread_time
from typing import Any, Generic, TypeVar

import structlog

from hoglab.delivery.bodies.child import DEATHS, BodyLimits, Child, SuspendedRun, Work
from hoglab.delivery.bodies.protocol import TurnOutcome
from hoglab.delivery.limits import ClaimSizes
from hoglab.fairness.fair_queue import FairQueue
from hoglab.hog import ensure_stack
from hoglab.hog.values import format_number

T = TypeVar("T")

SLOW_S = 0.005
"""Average computing time of bodies, in seconds, above which a function is served apart."""
REMEMBERED_FUNCTIONS = 10_000
"""Maximum number of functions whose computing times are remembered."""
CLOSE_S = 0.2
"""Time in seconds for bodies that still compute at the end to end by themselves."""
RESTART_S = 1.0
"""Pause in seconds before another process is started after one failed to start."""
BATCH_S = 0.05
"""Maximum expected computing time of the runs of one message together, in seconds."""
BATCH_BYTES = 4 << 20
"""Maximum size of one message in bytes (a single run may be larger)."""
STUCK_S = 0.02
"""Time in seconds that a thread may be busy before another one joins.

That one takes the jobs of quick functions, and continues runs that wait for the first thread's process.
"""
KEPT_UP = 2
"""Number of waiting jobs of quick functions that are left to a thread that is at work."""

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Compute(Generic[T]):
    """Body run that a job asks for; the job continues with ``then(outcome)``."""

    work: Work
    then: Callable[[TurnOutcome], T | Compute[T]]


Job = Callable[[], "T | Compute[T]"]
Done = Callable[[Any, BaseException | None], None]


@dataclass(slots=True, eq=False)
class _Task:
    job: Callable[[], Any]
    done: Done
    function_id: str
    child: Child | None  # the process where the run waits, which is the best one to continue it
    compute: Compute[Any] | None = None
    alone: bool = False  # it may have killed a process
    began_s: float = 0.0  # computing time of its job in the server


@dataclass(slots=True, eq=False)
class _WorkerSlot:
    """The place of one thread."""

    wake: threading.Condition
    child: Child | None = None
    own: FairQueue[_Task] = field(default_factory=FairQueue)
    busy_since: float | None = None
    slow: bool = False
    waits: bool = False  # until it is woken, or for a limited time
    watches: bool = False  # it waits for a moment only, to see whether the other threads keep up


class BodyPool:
    """Runs jobs, and the bodies that they ask for. `submit` may be called from any thread.

    A pool starts nothing before its first job. `close` it when nothing is submitted any more.
    """

    def __init__(self, limits: BodyLimits | None = None) -> None:
        self.limits = limits or BodyLimits()
        self._threads: list[threading.Thread] = []
        self._quick: FairQueue[_Task] = FairQueue()
        self._slow: FairQueue[_Task] = FairQueue()
        self._claim_sizes = ClaimSizes(self.limits.batch, min(self.limits.batch, self.limits.batch_shared))
        self._computing_s: OrderedDict[str, float] = OrderedDict()
        self._spare: Child | None = None
        self.starts_failed = 0
        """Number of failed starts of processes."""
        self._closing = False
        self._lock = threading.Lock()
        self._over = threading.Condition(self._lock)  # set when the pool closes
        self._slots = [_WorkerSlot(threading.Condition(self._lock)) for _ in range(self.limits.processes)]

    # --- for users

    def submit(
        self, job: Job[T], done: Done, *, function_id: str, suspended: SuspendedRun | None = None
    ) -> None:
        """Run a job of a function in a thread of the pool; ``done(value, error)`` is called there at its end.

        ``suspended`` is the suspended run that the job continues, if there is one.
        """
        self.submit_all([(job, done, function_id, suspended)])

    def submit_all(self, jobs: Sequence[tuple[Job[Any], Done, str, SuspendedRun | None]]) -> None:
        """Submit many jobs together, which is cheaper than `submit` for each: threads are woken once."""
        with self._lock:
            if self._closing:
                raise RuntimeError("the pool is closed")
            self._start()
            for job, done, function_id, suspended in jobs:
                self._enqueue(_Task(job, done, function_id, None if suspended is None else suspended.child))
            self._wake()

    def call(self, job: Job[T], function_id: str, suspended: SuspendedRun | None = None) -> T:
        """Run a job and wait for its result."""
        future: Future[T] = Future()

        def done(value: Any, error: BaseException | None) -> None:
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        self.submit(job, done, function_id=function_id, suspended=suspended)
        return future.result()

    def compute(self, work: Work) -> TurnOutcome:
        """Run a body and wait for its outcome."""

        def whole(outcome: TurnOutcome) -> TurnOutcome | Compute[TurnOutcome]:
            return outcome

        def job() -> TurnOutcome | Compute[TurnOutcome]:
            return Compute(work, whole)

        return self.call(job, work.function_id, work.suspended)

    @staticmethod
    def forget(suspended: SuspendedRun) -> None:
        """Drop a suspended run, which will not be continued."""
        suspended.child.forgotten.append(suspended.number)

    def processes(self) -> list[int]:
        """Return the ids of the running processes, the spare one last."""
        with self._lock:
            children = [slot.child for slot in self._slots] + [self._spare]
            return [child.process.pid for child in children if child is not None]

    def busy(self) -> int:
        """Return the number of processes at work."""
        with self._lock:
            return sum(slot.busy_since is not None for slot in self._slots)

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """End the threads and processes; work that goes on after ``timeout_s`` is ended, too."""
        with self._lock:
            self._closing = True
            self._over.notify_all()
            for slot in self._slots:
                slot.wake.notify()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for slot in self._slots:
            if slot.child is not None:
                slot.child.kill()
        for thread in self._threads:
            thread.join(timeout_s + 1.0)
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.end()

    # --- the line

    def _start(self) -> None:
        if not self._threads:
            self._threads = [
                threading.Thread(target=self._work, args=(slot,), name=f"hog-body-{number}", daemon=True)
                for number, slot in enumerate(self._slots)
            ]
            for thread in self._threads:
                thread.start()

    def _enqueue(self, task: _Task) -> None:
        self._claim_sizes.note([task.function_id])
        if task.child is not None:
            for slot in self._slots:
                if slot.child is task.child:
                    slot.own.append(task.function_id, task)
                    return
        if self._is_slow(task.function_id):
            self._slow.append(task.function_id, task)
        else:
            self._quick.append(task.function_id, task)

    def _is_slow(self, function_id: str) -> bool:
        return self._expected_s(function_id) >= SLOW_S

    def _expected_s(self, function_id: str) -> float:
        """Return the expected computing time of a body of the function, in seconds."""
        return self._computing_s.get(function_id, SLOW_S)

    def _note_pace(self, function_id: str, took_s: float) -> None:
        with self._lock:
            average_s = self._computing_s.pop(function_id, None)
            self._computing_s[function_id] = took_s if average_s is None else average_s * 0.8 + took_s * 0.2
            if (
                average_s is None and took_s < SLOW_S
            ):  # the average_s was unknown; the jobs that arrived meanwhile need not go one by one
                for task in self._slow.take_out(function_id):
                    self._quick.append(function_id, task)
            if len(self._computing_s) > REMEMBERED_FUNCTIONS:
                self._computing_s.popitem(last=False)

    def _wake(self) -> None:
        """Wake the threads that have something to do, and one that checks whether the others keep up."""
        others_work = False
        for slot in self._slots:
            if slot.waits and slot.own:
                self._rouse(slot)
            others_work |= not slot.waits and not slot.slow
        for slot in self._slots:
            if slot.waits and not (slot.watches and others_work):
                self._rouse(slot)
                return

    @staticmethod
    def _rouse(slot: _WorkerSlot) -> None:
        slot.waits = False
        slot.wake.notify()

    def _take(self, slot: _WorkerSlot) -> list[_Task] | None:
        """Return the next tasks of a thread, None when there will be none.

        Waits for tasks; returns none after a long wait.
        """
        with self._lock:
            slot.busy_since, slot.slow = None, False
            while not (tasks := self._find(slot)):
                if self._closing:
                    return None
                others_wait = any(other.own for other in self._slots)
                slot.waits, slot.watches = True, bool(self._quick) or others_wait
                woken = slot.wake.wait(STUCK_S if slot.watches else self.limits.idle_s)
                slot.waits = False
                if not woken and not slot.watches:
                    return []
            slot.busy_since = time.monotonic()
            if self._quick or self._slow:
                self._wake()
            return tasks

    def _find(self, slot: _WorkerSlot) -> list[_Task]:
        now = time.monotonic()
        tasks: list[_Task] = []
        self._move(slot.own, tasks)
        if not self._is_served(slot, now):
            self._move(self._quick, tasks)
        if tasks:
            return tasks
        apart = max(1, len(self._slots) - 1)
        if self._slow and sum(other.slow for other in self._slots) < apart:
            slot.slow = True
            return [self._slow.popleft()]
        for other in self._slots:
            if other.own and other.busy_since is not None and now - other.busy_since > STUCK_S:
                return [other.own.popleft()]
        return []

    def _is_served(self, slot: _WorkerSlot, now: float) -> bool:
        """Return whether another thread can be expected to take the jobs of quick functions at once."""
        return len(self._quick) <= KEPT_UP * self.limits.batch and any(
            other is not slot
            and not other.slow
            and other.busy_since is not None
            and now - other.busy_since <= STUCK_S
            for other in self._slots
        )

    def _move(self, line: FairQueue[_Task], tasks: list[_Task]) -> None:
        """Take from a line the tasks that fit into one message beside those that it has; at least one in all."""
        expected_s = sum(self._expected_s(task.function_id) for task in tasks)
        while line and len(tasks) < self._claim_sizes.size() and (not tasks or expected_s < BATCH_S):
            tasks.append(line.popleft())
            expected_s += self._expected_s(tasks[-1].function_id)

    # --- one thread

    def _work(self, slot: _WorkerSlot) -> None:
        ensure_stack()
        while (tasks := self._take(slot)) is not None:
            if not tasks:
                self._rest(slot)
                continue
            try:
                self._run(slot, tasks)
            except Exception:
                _logger.exception("body_thread_failed")
                for task in tasks:
                    self._finish(task, None, RuntimeError("the body could not be run"))
        self._leave(slot)

    def _run(self, slot: _WorkerSlot, tasks: Sequence[_Task]) -> None:
        asking = []
        for task in tasks:
            if task.compute is None:
                started = thread_time()
                self._advance(task, task.job)
                task.began_s = thread_time() - started
            if task.compute is not None:
                asking.append(task)
            elif task.began_s > SLOW_S:
                self._note_pace(task.function_id, task.began_s)
        while asking and not self._closing:
            batch = _message(asking)
            sent = set(batch)
            kept = [task for task in asking if task not in sent]
            asking = self._exchange(slot, batch) + kept
        for task in asking:
            self._finish(task, None, RuntimeError("the pool is closed"))

    def _advance(self, task: _Task, step: Callable[[], Any]) -> None:
        """Take a task one step further: to its next body, or to its end."""
        task.compute = None
        try:
            value = step()
        except BaseException as error:
            self._finish(task, None, error)
            return
        if isinstance(value, Compute):
            task.compute = value
        else:
            self._finish(task, value, None)

    @staticmethod
    def _finish(task: _Task, value: Any, error: BaseException | None) -> None:
        done, task.done = task.done, _nothing
        task.job = _nothing  # it may be large, and a thread keeps its last tasks while it waits
        done(value, error)

    def _exchange(self, slot: _WorkerSlot, tasks: list[_Task]) -> list[_Task]:
        """Run the bodies of some tasks. Return the tasks that need another body."""
        child = self._child(slot)
        if child is None:
            return tasks
        works = [_compute_of(task).work for task in tasks]
        sent = False
        try:
            numbers = child.send(works)
            sent = True
            for task, work, number in zip(tasks, works, numbers, strict=True):
                self._take_outcome(task, work, child.outcome(), SuspendedRun(child, number))
        except (OSError, EOFError) as error:
            at = child.done()
            culprit = tasks[at] if sent and at < len(tasks) else None
            self._bury(slot, child, culprit, stuck=isinstance(error, TimeoutError))
        return [task for task in tasks if task.compute is not None]

    def _take_outcome(self, task: _Task, work: Work, outcome: TurnOutcome, suspended: SuspendedRun) -> None:
        if outcome.unknown:
            work.suspended = None  # the process dropped the suspended run: it continues by its journal
            return
        compute = _compute_of(task)
        self._note_pace(work.function_id, task.began_s + outcome.used_s / (1 + outcome.answered))
        work.suspended = suspended if outcome.suspended else None
        self._advance(task, lambda: compute.then(outcome))

    # --- processes

    def _child(self, slot: _WorkerSlot) -> Child | None:
        """Return the thread's process, a new one if it has none; None when the pool closes before there is one."""
        while slot.child is None and not self._closing:
            with self._lock:
                child, self._spare = self._spare, None
            try:
                slot.child = child or Child(self.limits)
                spare = Child(self.limits)
            except OSError as error:  # the system has no resources for a process now
                _logger.error("body_process_not_started", error=str(error))  # noqa: TRY400
                self._pause()
                continue
            with self._lock:
                wanted = self._spare is None
                if wanted:
                    self._spare = spare
            if not wanted:
                spare.end()
        return slot.child

    def _pause(self) -> None:
        with self._lock:
            self.starts_failed += 1
            self._over.wait_for(lambda: self._closing, RESTART_S)

    def _bury(self, slot: _WorkerSlot, child: Child, culprit: _Task | None, *, stuck: bool) -> None:
        """Find out why a process died, and whether its current task is to blame."""
        with self._lock:
            slot.child = None
            for task in slot.own:
                task.child = None
        if stuck:
            child.kill()
        status = child.end()
        if self._closing or (status == 0 and not stuck):
            return  # it ended to be replaced by a fresh one; no task is to blame
        if not child.ready:
            _logger.error("body_process_did_not_start", status=status)
            self._pause()
            return
        reason = "time" if stuck or status == -signal.SIGPROF else "crash"
        DEATHS.labels(reason).inc()
        work = None if culprit is None else _compute_of(culprit).work
        _logger.warning(
            "body_process_died",
            reason=reason,
            status=status,
            function_id=None if work is None else work.function_id,
            invocation_id=None if work is None else work.run_id,
        )
        if culprit is not None:
            self._blame(culprit, reason)

    def _blame(self, culprit: _Task, reason: str) -> None:
        """Give up a run that took too long or killed its process too often; the other tasks are tried again."""
        compute = _compute_of(culprit)
        work = compute.work
        work.crashes += 1
        culprit.alone = True
        if reason == "time":
            error = f"Execution timed out after {format_number(self.limits.time_s)} seconds."
        elif work.crashes > self.limits.crashes:
            error = f"The process that ran the function ended unexpectedly, {work.crashes} times in a row."
        else:
            return
        used_s = self.limits.time_s + self.limits.grace_s
        self._note_pace(work.function_id, used_s)
        outcome = TurnOutcome(error=error, used_s=used_s, crashed=reason == "crash")
        self._advance(culprit, lambda: compute.then(outcome))

    def _rest(self, slot: _WorkerSlot) -> None:
        """End the process after some time without work."""
        child, slot.child = slot.child, None
        if child is not None:
            child.end()

    def _leave(self, slot: _WorkerSlot) -> None:
        while slot.own:
            self._finish(slot.own.popleft(), None, RuntimeError("the pool is closed"))
        with self._lock:
            while self._quick:
                self._finish(self._quick.popleft(), None, RuntimeError("the pool is closed"))
            while self._slow:
                self._finish(self._slow.popleft(), None, RuntimeError("the pool is closed"))
            child, slot.child = slot.child, None
        if child is not None:
            child.end()


def _message(tasks: list[_Task]) -> list[_Task]:
    """Return the tasks of one message. A task that may have killed a process comes last, and alone."""
    together = [task for task in tasks if not task.alone] or tasks[:1]
    size = 0
    for at, task in enumerate(together):
        size += _compute_of(task).work.size
        if at and size > BATCH_BYTES:
            return together[:at]
    return together


def _compute_of(task: _Task) -> Compute[Any]:
    assert task.compute is not None  # noqa: S101 - only tasks that ask for a body come here
    return task.compute


def _nothing(*_: Any) -> None:
    """Do nothing: the task was finished before."""
