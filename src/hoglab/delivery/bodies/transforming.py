"""The process that runs the bodies of transformations.

Ingestion waits for it, so it serves nothing else, and gets many events at a time: while it works on some, the
server reads the results of earlier ones and sends the next. The limits of a single run apply here, too. Beyond
that, a function whose runs are slow again and again is given up for the rest of a batch, so that it delays
ingestion for seconds and not until the circuit breaker stops it.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

import structlog

from hoglab.delivery.bodies.child import DEATHS, BodyLimits, Child
from hoglab.fairness.compute_quota import ComputeQuota
from hoglab.functions.body_run import BodyRun
from hoglab.hog.values import format_number

if TYPE_CHECKING:
    from pathlib import Path

GROUP_EVENTS = 256
GROUP_BYTES = 1 << 20
"""Maximum number of events, and maximum size of their JSON, in one request (a single event may be larger)."""
BATCH_BYTES = 256 << 20
"""Size in bytes of a function's results in one batch above which it is given up."""
RESTART_S = 1.0
"""Pause in seconds before another process is started after one failed to start."""
GIVEN_UP = "The function took too long, or made too much, of this batch of events and was given up."

_logger = structlog.get_logger(__name__)


class TransformationProcess:
    """One process, started when it is first needed, and again after it died. May be used by any thread.

    `close` it when it is not needed any more.
    """

    def __init__(self, limits: BodyLimits | None = None, *, geoip: Path | None = None) -> None:
        """Create the process's owner. ``geoip`` is the database of `geoipLookup`."""
        self.limits = limits or BodyLimits()
        self._geoip = geoip
        self._child: Child | None = None
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def run(
        self,
        function_id: str,
        source: str,
        shared: bytes,
        events: Iterable[bytes],
        *,
        hurried: bool = False,
        most_s: float = math.inf,
    ) -> Generator[BodyRun, None, None]:
        """Run a program on events. Yield one result for each, in order.

        ``events`` are JSON objects with the globals of each run, ``shared`` one with their common globals. They are
        read as they are needed, some of them before the first result. ``hurried``: a slow program is given up
        earlier; ``most_s``: computing time in all after which it is given up. Raises `RuntimeError` when the
        process is closed. Close the iterator if not all of it is read.
        """
        batch = _Batch(iter(events), hurried=hurried, most_s=most_s)
        with self._lock:
            answered: list[BodyRun] = []
            asked: list[bytes] = []
            try:
                while asked := batch.take():
                    child = self._begin(source, function_id, shared, asked)
                    yield from answered
                    batch.fill()
                    answered = self._answers(child, function_id, asked, batch)
                    batch.note(asked, answered)
                    asked = []
            finally:
                if asked:
                    self._drop()  # the caller stopped reading, and nobody reads the remaining answers
        yield from answered
        yield from batch.given_up()

    def process(self) -> int | None:
        """Return the id of the process, None while there is none."""
        child = self._child
        return None if child is None else child.process.pid

    def close(self) -> None:
        """End the process; callers that wait for it get a `RuntimeError`."""
        self._closing.set()
        child = self._child
        if child is not None:
            child.kill()
        with self._lock:
            self._drop()

    # --- the process

    def _begin(self, source: str, seed: str, shared: bytes, events: list[bytes]) -> Child:
        """Start work on the events, and return the process."""
        child = self._child = self._child or self._started()
        with contextlib.suppress(OSError):  # the reason of its death is found out where its answer is missing
            child.begin_transforming(source, seed, shared, events)
        return child

    def _started(self) -> Child:
        while not self._closing.is_set():
            try:
                return Child(self.limits, self._geoip)
            except OSError as error:  # the system has no resources for a process now
                _logger.error("body_process_not_started", error=str(error))  # noqa: TRY400
                self._closing.wait(RESTART_S)
        raise RuntimeError("transformations are over")

    def _answers(self, child: Child, function_id: str, asked: list[bytes], batch: _Batch) -> list[BodyRun]:
        """Return results for the first events of a request; none when all are to be sent again."""
        try:
            return child.transformed().runs
        except (OSError, EOFError) as error:
            reason = self._bury(child, function_id, stuck=isinstance(error, TimeoutError))
        if reason is None:
            return []
        limit_s = self.limits.time_s
        if len(asked) > 1:
            batch.alone = len(asked)  # to find the one that killed the process
            return []
        batch.crashes += 1
        if reason == "time":
            text = f"Execution timed out after {format_number(limit_s)} seconds."
        elif batch.crashes > self.limits.crashes:
            text = f"The process that ran the function ended unexpectedly, {batch.crashes} times in a row."
        else:
            return []
        return [BodyRun(error=text, used_s=limit_s + self.limits.grace_s)]

    def _bury(self, child: Child, function_id: str, *, stuck: bool) -> str | None:
        """Return why the process died: ``time`` or ``crash``, None when its work is not to blame."""
        self._child = None
        if stuck:
            child.kill()
        status = child.end()
        if self._closing.is_set():
            raise RuntimeError("transformations are over")
        if status == 0 and not stuck:
            return None  # it ended to be replaced by a fresh one
        if not child.ready:
            _logger.error("body_process_did_not_start", status=status)
            self._closing.wait(RESTART_S)
            return None
        reason = "time" if stuck or status == -signal.SIGPROF else "crash"
        DEATHS.labels(reason).inc()
        _logger.warning("body_process_died", reason=reason, status=status, function_id=function_id)
        return reason

    def _drop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.end()


class _Batch:
    """The events that a function has still to be run on.

    ``alone`` is how many of them are sent one by one; ``crashes`` how often the process died of the first one.
    """

    def __init__(self, events: Iterator[bytes], *, hurried: bool, most_s: float) -> None:
        self.alone = 0
        self.crashes = 0
        self._events = events
        self._waiting: deque[bytes] = deque()
        self._quota = ComputeQuota()
        if hurried:
            self._quota.hurry("")
        self._most_s = most_s
        self._size = 0

    @property
    def _is_over(self) -> bool:
        used_s = self._quota.used_s("")
        return self._quota.is_over("") or used_s > self._most_s or self._size > BATCH_BYTES

    def fill(self) -> None:
        """Have the next events ready."""
        self._waiting.extend(islice(self._events, max(0, GROUP_EVENTS - len(self._waiting))))

    def take(self) -> list[bytes]:
        """Return the next events to send, none when all were sent or the function is given up."""
        self.fill()
        taken: list[bytes] = []
        size = 0
        while self._waiting and not self._is_over and len(taken) < (1 if self.alone else GROUP_EVENTS):
            size += len(self._waiting[0])
            if taken and size > GROUP_BYTES:
                break
            taken.append(self._waiting.popleft())
        return taken

    def note(self, asked: list[bytes], answered: list[BodyRun]) -> None:
        """Record the answers; events that were sent and not answered are next."""
        self._waiting.extendleft(reversed(asked[len(answered) :]))
        if answered:
            self.alone = max(0, self.alone - len(answered))
            self.crashes = 0
        for run in answered:
            self._quota.note("", run.used_s)
            self._size += len(run.value or b"")

    def given_up(self) -> Iterator[BodyRun]:
        """Yield an answer for each event that is left."""
        for _event in chain(self._waiting, self._events):
            yield BodyRun(error=GIVEN_UP, given_up=True)
