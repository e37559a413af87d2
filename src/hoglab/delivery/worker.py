"""The worker: claims invocations, runs their turns, sends their requests, writes the results.

One thread with an event loop. Turns are computed in a few other threads, which have the programs run in processes
of their own; the queue is used from two more. So the loop itself waits only for time and sockets (spec: hog-runtime
4.6, 4.9).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter as Tally
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
import uvloop
from prometheus_client import Counter, Gauge, Histogram

from hoglab.delivery.bodies.on_loop import BodiesOnLoop
from hoglab.delivery.dispatch import NO_EVENTS_FAULT
from hoglab.delivery.execution import BATCH_QUEUE, CaptureRefusedError, Perform, Turn, TurnResult, clipped
from hoglab.delivery.execution.retries import retriable
from hoglab.delivery.limits import ClaimSizes, RateLimiter
from hoglab.delivery.limits.function_breaker import cost_of
from hoglab.delivery.limits.in_flight import InFlight
from hoglab.delivery.outbound import Email, Fetcher, FetchResponse, MailSent
from hoglab.delivery.queue_gauges import BACKLOG, measure
from hoglab.delivery.runs import Heartbeat, Latencies, Locks, Streaks
from hoglab.fairness.fair_semaphore import FairSemaphore, Holder
from hoglab.storage.invocations import InvocationOutcome, LogEntry

if TYPE_CHECKING:
    from hoglab.delivery.bodies.pool import BodyPool
    from hoglab.delivery.execution import EventSink, RunContext
    from hoglab.delivery.execution.answers import Answer
    from hoglab.delivery.limits import Breakers
    from hoglab.delivery.limits.in_flight import Full, Quota
    from hoglab.delivery.outbound import FetchFailure, FetchRequest, MailFailure
    from hoglab.storage.invocations import ClaimedInvocation, InvocationStores

PASSED_OVER_S = 0.02
"""Minimum time in seconds between two claims that find nothing to do, unless something changes meanwhile."""

GATHER_S = 0.01
"""Time in seconds that a claim waits for more room when there is little."""

QUEUES = ("hog", "hogoverflow")
"""The queues in the order in which they are claimed; degraded functions are in the second."""

_logger = structlog.get_logger(__name__)

_TURNS = Counter("hoglab_delivery_turns", "Turns of invocations that were finished.", ["outcome"])
_REQUESTS = Counter("hoglab_delivery_requests", "Requests that functions sent.", ["outcome"])
_REQUEST_SECONDS = Histogram("hoglab_delivery_request_seconds", "Time of one request of a function.")
_EMAILS = Counter("hoglab_delivery_emails", "E-mails that functions handed to the mail server.", ["outcome"])
_EMAIL_SECONDS = Histogram("hoglab_delivery_email_seconds", "Time of handing over one e-mail.")
_FENCED = Counter(
    "hoglab_delivery_fenced", "Runs that did not count any more because another process had taken them over."
)
_IN_FLIGHT = Gauge("hoglab_delivery_in_flight", "Invocations that are being worked on.")


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Limits of concurrency, and intervals of polling. Times in seconds.

    ``per_destination``: requests to one host and port; those without an answer for longer than ``slow_s`` do not
    count, up to ``per_destination_slow`` in all. See `FairSemaphore` for the share of each function.

    ``claim_each``: runs of one function, ``claim_shared`` while others have work, too; see `ClaimSizes`.

    Results of runs are written ``flush_s`` after the first of them, or ``flush_busy_s`` when as many are at work as
    are written at a time.
    """

    in_flight: int = 512
    per_function: int = 128
    per_destination: int = 192
    per_destination_slow: int = 384
    slow_s: float = 1.0
    claim: int = 100
    claim_each: int = 64
    claim_shared: int = 8
    flush_outcomes: int = 100
    flush_s: float = 0.004
    flush_busy_s: float = 0.02
    heartbeat_s: float = 10.0
    sweep_s: float = 5.0
    idle_s: float = 0.5
    capture_retry_s: float = 0.5
    max_capture_retry_s: float = 10.0


class Worker:
    """Background service; `start` and `stop` it once."""

    def __init__(
        self,
        stores: InvocationStores,
        context: RunContext,
        breakers: Breakers,
        bodies: BodyPool,
        capture: EventSink,
        limits: WorkerLimits,
    ) -> None:
        self.stores = stores
        self.context = context
        self.breakers = breakers
        self.bodies = bodies
        self.capture = capture
        self.limits = limits
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._stop_at: float | None = None
        self._stopping: asyncio.Event | None = None
        self.progress = Heartbeat()
        """Progress of claiming and ending runs, which never rests while the worker runs."""

    def start(self) -> None:
        """Take over the work of an earlier process, and start working."""
        self.stores.queue.release_all()
        self._thread = threading.Thread(target=self._run, name="delivery", daemon=True)
        self._thread.start()
        self._ready.wait()

    def stop(self, timeout_s: float) -> bool:
        """Finish current turns, put back those that take longer. Return whether it ended in time."""
        thread, loop = self._thread, self._loop
        if thread is None or loop is None:
            return True
        self._stop_at = time.monotonic() + timeout_s * 0.7  # the rest is for writing
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._ask_to_stop)
        thread.join(timeout_s)
        return not thread.is_alive()

    def is_alive(self) -> bool:
        """Return whether the worker runs, for health checks."""
        return self._thread is not None and self._thread.is_alive()

    def _ask_to_stop(self) -> None:
        assert self._stopping is not None  # noqa: S101 - made before the loop was ready
        self._stopping.set()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._main())
        except Exception:
            _logger.exception("delivery_worker_ended")
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        fetcher = self.context.outbound.fetcher()
        loop = _WorkerLoop(self, fetcher, self._stopping)
        self._ready.set()
        try:
            await loop.work()
            self.progress.rest()
            remaining_s = max(0.0, (self._stop_at or 0.0) - time.monotonic())
            await loop.wind_up(remaining_s)
        finally:
            await fetcher.close()


class _WorkerLoop:
    """Resources that live as long as the worker's event loop."""

    def __init__(self, worker: Worker, fetcher: Fetcher, stopping: asyncio.Event) -> None:
        context, limits = worker.context, worker.limits
        self._progress = worker.progress
        self._queue = worker.stores.queue
        self._context = context
        self._fetcher = fetcher
        self._mailer = context.outbound.mailer
        self._function_breakers = worker.breakers.functions
        self._breakers = worker.breakers.destinations
        self._streaks = Streaks()
        self._capture = worker.capture
        self._limits = limits
        self._stopping = stopping
        self._bodies = BodiesOnLoop(worker.bodies)
        self._rate_limits = RateLimiter(context.rate_limit_of, shared=worker.stores.rate_limits)
        self._claim_sizes = ClaimSizes(limits.claim_each, limits.claim_shared)
        self._latencies = Latencies()
        self._claimer = ThreadPoolExecutor(1, "delivery-claim")
        self._writer = ThreadPoolExecutor(1, "delivery-write")
        self._tasks: dict[asyncio.Task[None], ClaimedInvocation] = {}
        self._by_id: dict[str, asyncio.Task[None]] = {}
        self._not_begun: list[ClaimedInvocation] = []
        self._locks = Locks(self._heartbeat, self._lose, retry_s=limits.idle_s)
        self._in_flight = InFlight(limits.in_flight, limits.per_function)
        self._destinations = FairSemaphore(
            limits.per_destination, most=limits.per_destination_slow, slow_s=limits.slow_s
        )
        self._mail_servers = FairSemaphore(self._mailer.limits.at_once)
        self._settled: list[TurnResult] = []
        self._turns: Tally[str] = (
            Tally()
        )  # by outcome, as for the requests, until they are counted with others
        self._requests: Tally[str] = Tally()
        self._flush_wanted = asyncio.Event()
        self._flush_full = asyncio.Event()
        self._room = asyncio.Event()

    # --- life

    async def work(self) -> None:
        """Work until the worker is asked to stop."""
        self._progress.beat()
        claimer = asyncio.create_task(self._keep_going(self._claim_forever, "claim"))
        helpers = [
            asyncio.create_task(self._keep_going(step, name))
            for name, step in (
                ("flush", self._flush_forever),
                ("heartbeat", self._beat_forever),
                ("sweep", self._sweep_forever),
            )
        ]
        try:
            await self._stopping.wait()
            self._room.set()
            self._queue.arrivals.wake()  # the claimer may sleep until there is work
            await asyncio.wait({claimer}, timeout=self._limits.idle_s * 2)
        finally:
            for helper in (claimer, *helpers):
                helper.cancel()
            await asyncio.gather(claimer, *helpers, return_exceptions=True)

    async def wind_up(self, timeout_s: float) -> None:
        """Let current turns end, put back the others, write everything."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=timeout_s)
        abandoned = [*self._tasks.values(), *self._not_begun]
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        put_back = [
            InvocationOutcome(
                invocation.id, invocation.lock_token, "available", scheduled_at=invocation.scheduled_at
            )
            for invocation in abandoned
        ]
        await self._flush(put_back)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._writer, self._function_breakers.save)
        self._claimer.shutdown(wait=False, cancel_futures=True)
        self._writer.shutdown()

    async def _keep_going(self, step: Callable[[], Awaitable[None]], name: str) -> None:
        """Run an endless helper; after a failure (the disk is full, for example), start it again after a moment."""
        while not self._stopping.is_set():
            try:
                await step()
            except Exception:
                _logger.exception("delivery_step_failed", step=name)
                await asyncio.sleep(self._limits.idle_s)

    # --- claiming

    async def _claim_forever(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            self._room.clear()
            free = self._in_flight.free
            room = min(self._limits.claim, free)
            if room <= 0:
                await self._room.wait()
                continue
            # Claiming a handful at a time costs a transaction each: wait a little, until it is worth it.
            if room < min(self._limits.claim, self._limits.in_flight) // 4:
                await self._wait_for_room(free)
                room = min(self._limits.claim, self._in_flight.free)
            full = self._in_flight.pass_over()
            quota = self._in_flight.quota(self._rate_limits, self._breakers)
            size = max(1, min(self._claim_sizes.size(), free // 8))
            asked_at = self._locks.now()
            claimed = await loop.run_in_executor(self._claimer, self._claim, room, size, full, quota)
            if self._stopping.is_set():
                self._not_begun += claimed
                return
            self._progress.beat()
            self._claim_sizes.note(invocation.function_id for invocation in claimed)
            for invocation in claimed:
                self._locks.take(invocation, asked_at)
                self._take(invocation)
            _IN_FLIGHT.set(len(self._tasks))

    async def _wait_for_room(self, free: int) -> None:
        """Wait until a quarter of a claim has room, at most for `GATHER_S`."""
        wanted = max(free + 1, min(self._limits.claim, self._limits.in_flight) // 4)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GATHER_S):
                while self._in_flight.free < wanted and not self._stopping.is_set():
                    self._room.clear()
                    await self._room.wait()

    def _claim(self, room: int, per_function: int, full: Full, quota: Quota) -> list[ClaimedInvocation]:
        """Claim due runs; when there are none, sleep until there may be some."""
        claimed: list[ClaimedInvocation] = []
        self._gather()
        self._rate_limits.look_up()
        for name in QUEUES:
            if room > len(claimed):
                claimed += self._queue.claim(
                    queue=name,
                    limit=room - len(claimed),
                    limit_each=per_function,
                    exclude_functions=full.functions,
                    exclude_projects=full.projects,
                    allowance=quota,
                )
        quota.close()
        if self._in_flight.is_stale(full):
            return claimed  # one of them had a run that ended before the last claim, which thus knows of its wake
        waits_s = (self._rate_limits.wait_s(), self._breakers.wait_s())
        wait_s = min((known_s for known_s in waits_s if known_s is not None), default=None)
        if not claimed and wait_s != 0.0 and not self._stopping.is_set():
            # A function that was passed over may have work that is due as soon as one of its runs ends.
            timeout_s = PASSED_OVER_S if any(full) else self._limits.idle_s
            due = self._queue.counts.next_due()
            if wait_s is not None:  # due runs wait for the rate limit of their function, or for a destination
                timeout_s = min(timeout_s, wait_s)
            elif due is not None:
                until_s = (due - datetime.now(UTC)).total_seconds()
                timeout_s = min(timeout_s, max(until_s, PASSED_OVER_S))
            self._queue.arrivals.wait(timeout_s)
        return claimed

    def _gather(self) -> None:
        """Merge runs of events that have waited for each other."""
        waiting = self._queue.gathering(BATCH_QUEUE)
        if waiting:
            sizes = {function_id: self._context.batch_size(function_id) for function_id in waiting}
            self._queue.gather(BATCH_QUEUE, sizes, self._context.merge)

    def _take(self, claimed: ClaimedInvocation) -> None:
        task = asyncio.create_task(self._work_on(claimed))
        self._tasks[task] = claimed
        self._by_id[claimed.id] = task
        self._in_flight.began(claimed)
        task.add_done_callback(self._drop)

    def _drop(self, task: asyncio.Task[None]) -> None:
        claimed = self._tasks.pop(task)
        self._by_id.pop(claimed.id, None)
        self._locks.drop(claimed)
        if self._in_flight.ended(claimed):
            self._queue.arrivals.wake()
        self._room.set()
        if not task.cancelled() and task.exception() is not None:
            _logger.error("invocation_task_failed", invocation_id=claimed.id, exc_info=task.exception())

    # --- one invocation

    async def _work_on(self, claimed: ClaimedInvocation) -> None:
        turn = Turn(self._context, claimed)
        function_id = claimed.function_id
        step: Perform | TurnResult = await self._bodies.run(turn.begin, function_id)
        while isinstance(step, Perform):
            answer, duration_ms, where = await self._perform(step.request, claimed, turn.accepted_at())
            failed = retriable(answer)
            says_something = failed or not step.is_login  # a log-in that was kept does not
            if says_something and self._breakers.note(function_id, where, turn.patience_s, failed=failed):
                self._queue.arrivals.wake()
            go_on = partial(turn.answered, answer, duration_ms)
            step = await self._bodies.run(go_on, function_id, turn.suspended)
        if step.captured is not None:
            step = await self._capture_event(claimed, step, step.captured)
        self._settle(step)

    async def _perform(
        self, request: FetchRequest | Email, claimed: ClaimedInvocation, accepted_at: datetime | None
    ) -> tuple[Answer, float, str]:
        """Return the answer, its duration in milliseconds, and its origin."""
        if isinstance(request, Email):
            places, where, seconds = self._mail_servers, self._mailer.host, _EMAIL_SECONDS
        else:
            where = self._fetcher.destination_of(request.url)
            places, seconds = self._destinations, _REQUEST_SECONDS
        holder = Holder(claimed.project_id, claimed.function_id)
        place = await places.enter(where, holder)
        try:
            await self._locks.ensure(claimed)
            started = time.perf_counter()
            if accepted_at is not None:
                self._latencies.first_request(claimed.function_id, accepted_at, datetime.now(UTC))
            if isinstance(request, Email):
                answer: Answer = await self._send(request, claimed.project_id)
            else:
                fetch = partial(self._fetch, request, holder)
                answer = await self._context.logins.answer(claimed.function_id, request, fetch)
            took_s = time.perf_counter() - started
        finally:
            places.leave(place)
        seconds.observe(took_s)
        return answer, took_s * 1000, where

    async def _fetch(self, request: FetchRequest, holder: Holder) -> FetchResponse | FetchFailure:
        answer = await self._fetcher.fetch(request, holder)
        self._requests[str(answer.status) if isinstance(answer, FetchResponse) else answer.kind] += 1
        return answer

    async def _send(self, email: Email, project_id: int) -> MailSent | MailFailure:
        answer = await self._mailer.send(email, project_id)
        _EMAILS.labels("sent" if isinstance(answer, MailSent) else str(answer.code or "failed")).inc()
        return answer

    async def _capture_event(
        self, claimed: ClaimedInvocation, settled: TurnResult, event: dict[str, Any]
    ) -> TurnResult:
        """Put a captured event into the event log, before the result of the turn is written.

        It has a fixed uuid, so that storing it twice is harmless. As long as nothing can be stored the turn waits;
        when the worker stops meanwhile, it is put back.
        """
        wait_s = self._limits.capture_retry_s
        while True:
            try:
                await self._capture(claimed.project_id, event, insist=True)
            except CaptureRefusedError as refusal:
                if not refusal.for_now:
                    return self._with_error(claimed, settled, str(refusal))
                reason = str(refusal)
            except NO_EVENTS_FAULT as error:
                reason = f"{type(error).__name__}: {error}"
            except Exception as error:
                _logger.exception("captured_event_lost", invocation_id=claimed.id)
                return self._with_error(claimed, settled, type(error).__name__)
            else:
                return settled
            if wait_s == self._limits.capture_retry_s:
                _logger.warning("captured_event_waits", invocation_id=claimed.id, reason=reason)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, self._limits.max_capture_retry_s)

    @staticmethod
    def _with_error(claimed: ClaimedInvocation, settled: TurnResult, reason: str) -> TurnResult:
        text = clipped(f"The captured event was not stored: {reason}.")
        line = LogEntry(claimed.project_id, claimed.function_id, claimed.id, datetime.now(UTC), "error", text)
        return replace(settled, logs=[*settled.logs, line])

    def _settle(self, settled: TurnResult) -> None:
        self._progress.beat()
        self._settled.append(settled)
        if settled.timings:
            took_s = sum(timing.duration_ms for timing in settled.timings) / 1000
            self._latencies.run_ended(settled.function_id, took_s)
        self._turns[settled.outcome.status] += 1
        self._flush_wanted.set()
        if len(self._settled) >= self._limits.flush_outcomes:
            self._flush_full.set()

    # --- writing

    async def _flush_forever(self) -> None:
        while True:
            await self._flush_wanted.wait()
            limits = self._limits
            is_busy = len(self._tasks) >= limits.flush_outcomes
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limits.flush_busy_s if is_busy else limits.flush_s):
                    await self._flush_full.wait()
            await self._flush()

    async def _flush(self, more: list[InvocationOutcome] | None = None) -> None:
        """Write all results since the last time, in one transaction."""
        settled, self._settled = self._settled, []
        self._count()
        self._flush_wanted.clear()
        self._flush_full.clear()
        if not settled and not more:
            return
        loop = asyncio.get_running_loop()
        try:
            await asyncio.shield(loop.run_in_executor(self._writer, self._write, settled, more or []))
        except Exception:
            # Nothing was written; it is tried again with the next results.
            self._settled = settled + self._settled
            self._flush_wanted.set()
            raise
        BACKLOG.set(self._queue.counts.backlog())
        _IN_FLIGHT.set(len(self._tasks))

    def _count(self) -> None:
        """Count for Prometheus the work since the last time."""
        for counter, tally in ((_TURNS, self._turns), (_REQUESTS, self._requests)):
            for outcome, number in tally.items():
                counter.labels(outcome).inc(number)
            tally.clear()

    def _write(self, settled: list[TurnResult], more: list[InvocationOutcome]) -> None:
        outcomes = [settlement.outcome for settlement in settled] + more
        applied = self._queue.finish(
            outcomes,
            logs=[line for settlement in settled for line in settlement.logs],
            metrics=[metric for settlement in settled for metric in settlement.metrics],
            results=[result for settlement in settled for result in settlement.results],
        )
        _FENCED.inc(len({outcome.id for outcome in outcomes} - applied))
        costs: Tally[str] = Tally()
        for settlement in settled:
            for result in settlement.results:
                self._streaks.note(result)
            if settlement.timings:
                costs[settlement.function_id] += cost_of(settlement.timings)
        if costs:
            self._function_breakers.observe(costs)

    # --- keeping locks

    async def _beat_forever(self) -> None:
        while True:
            await asyncio.sleep(self._limits.heartbeat_s)
            await self._locks.renew()

    async def _heartbeat(self, tokens: dict[str, str]) -> frozenset[str]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer, self._queue.heartbeat, tokens)

    def _lose(self, run_id: str) -> None:
        """End a run that another process has taken over."""
        _logger.warning("invocation_lock_lost", invocation_id=run_id)
        _FENCED.inc()
        if (task := self._by_id.get(run_id)) is not None:
            task.cancel()

    async def _sweep_forever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sweep = await loop.run_in_executor(self._writer, self._queue.sweep)
            if sweep.reset:
                _logger.warning("stalled_invocations_reset", count=sweep.reset)
            for claimed in sweep.poisoned:
                turn = Turn(self._context, claimed)
                self._settle(turn.poisoned())
            await loop.run_in_executor(self._writer, self._function_breakers.save)
            await loop.run_in_executor(self._writer, measure, self._queue, self._breakers)
            await asyncio.sleep(self._limits.sweep_s)
