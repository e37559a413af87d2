"""The program that runs bodies.

``python -m hoglab.delivery.bodies.process FD DONE MEMORY_BYTES GRACE_S TIME_S CALLS PROGRAM_BYTES [GEOIP]``: started
by `child`, never by hand. Between the language's own limits and the server stand three walls of the system: the address
space, a clock of computing time that ends the process (even inside one long operation of the runtime), and an
environment without the server's secrets and sockets.
"""

from __future__ import annotations

import signal
import sys

# First of all: the signals are for the server, which ends this process by closing its end of the socket.
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)

import gc  # noqa: E402

gc.disable()  # while modules are loaded there is no garbage, and looking for it takes an eighth of the time

import math  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import socket  # noqa: E402
import time  # noqa: E402
from collections import OrderedDict  # noqa: E402
from dataclasses import replace  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import orjson  # noqa: E402

from hoglab.delivery.bodies.answers import Answers  # noqa: E402
from hoglab.delivery.bodies.hosted import RUNNING, HostedExecution  # noqa: E402
from hoglab.delivery.bodies.protocol import (  # noqa: E402
    PROGRAMS,
    Begin,
    Forget,
    Frames,
    Request,
    Resume,
    RunLimits,
    Transform,
    Transformed,
    TurnOutcome,
    json_of,
    send,
)
from hoglab.functions.body_run import BodyRun  # noqa: E402
from hoglab.functions.environments import GeoIpLookup, transforming  # noqa: E402
from hoglab.hog import (  # noqa: E402
    REPEAT_FACTOR,
    Environment,
    ErrorInfo,
    Execution,
    Finished,
    HogRuntimeError,
    HogSourceError,
    Program,
    Suspended,
    compile_program,
    ensure_stack,
    from_json,
    to_json,
)
from hoglab.hog.values import is_truthy, memory_text  # noqa: E402

SUSPENDED_RUNS = 1_000
"""Maximum number of suspended runs that are kept alive; the oldest are dropped, and resumed by their journals."""
SUSPENDED_BYTES = 128 << 20
"""Memory of suspended runs, as the language accounts for it, above which the oldest are dropped."""
RETIRE_BYTES = 384 << 20
"""Size of a process at which it ends and is replaced by a fresh one."""
OPEN_FILES = 64
MAX_EVENT_BYTES = 4 << 20
"""Largest JSON text of an event that a transformation may return."""
BY_POLICY = -1.0
"""Value of ``TurnOutcome.retry_after_s`` for an error that does not say how long to wait."""
TURN_S = 0.5
"""Computing time for one request, in seconds, after which the finished part is answered."""
TURN_BYTES = 8 << 20
"""Size of an answer in bytes after which the finished part is answered."""


class _Clock:
    """Source of ``now()``: the server's time, advanced by a clock that cannot be set."""

    __slots__ = ("_base",)

    def __init__(self, now: float) -> None:
        self.set(now)

    def set(self, now: float) -> None:
        self._base = now - time.monotonic()

    def __call__(self) -> float:
        return self._base + time.monotonic()


class RunTable:
    """The runs of one process."""

    def __init__(self, limits: RunLimits, look_up: GeoIpLookup | None) -> None:
        self.spent = False
        self._grace_s = limits.grace_s
        time_s, program_bytes = limits.time_s, limits.program_bytes
        own = replace(RUNNING.limits, time_s=time_s, async_steps=limits.calls, memory_bytes=program_bytes)
        self._running = RUNNING.with_limits(own)
        changing = transforming(look_up)
        own = replace(changing.limits, time_s=time_s, memory_bytes=program_bytes)
        self._transforming = changing.with_limits(own)
        self._programs: OrderedDict[int, str] = OrderedDict()
        self._suspended: OrderedDict[int, tuple[HostedExecution, _Clock, int]] = OrderedDict()
        self._suspended_bytes = 0

    def answer(self, request: Request) -> TurnOutcome | Transformed | None:
        """Answer a request. Ends the process when the work takes far longer than its limit."""
        if isinstance(request, Transform):
            return self._transform(request)
        if isinstance(request, Forget):
            for number in request.numbers:
                self._drop(number)
            return None
        repeats = isinstance(request, Begin) and request.journal is not None
        most_s = self._running.limits.time_s * (1 + REPEAT_FACTOR * repeats) + self._grace_s
        signal.setitimer(signal.ITIMER_PROF, most_s)
        try:
            return self._begin(request) if isinstance(request, Begin) else self._resume(request)
        except MemoryError:
            self.spent = True
            limit = self._running.limits.memory_bytes
            return TurnOutcome(error=memory_text(limit, limit))
        except HogRuntimeError as error:
            return TurnOutcome(error=_clean(error.message))
        except Exception as error:
            return TurnOutcome(error=f"Internal error: {type(error).__name__}: {error}"[:500])
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def _begin(self, request: Begin) -> TurnOutcome:
        try:
            program = self._program(request, self._running)
        except HogSourceError as error:
            return TurnOutcome(refused=error.message)
        variables = from_json(orjson.loads(request.globals)) | from_json(orjson.loads(request.more))
        clock = _Clock(request.now)
        journal = None if request.journal is None else orjson.loads(request.journal)
        # A request that nobody has answered is made again, with the time of this attempt in what signs or dates it.
        renew = journal is not None and request.answer is None and journal["pending"]["call"] != "sleep"
        execution = HostedExecution(
            program, variables, seed=request.run_id, clock=clock, journal=journal, renew=renew
        )
        execution.run_id = request.run_id
        step = execution.start()
        if request.answer is not None and isinstance(step, Suspended):
            shown = len(execution.printed_lines)
            step = _go_on(execution, request.answer)
            return self._outcome(request.number, execution, clock, step, shown)
        return self._outcome(request.number, execution, clock, step, 0)

    def _resume(self, request: Resume) -> TurnOutcome:
        suspended = self._drop(request.number)
        if suspended is None:
            return TurnOutcome(unknown=True)
        execution, clock = suspended
        clock.set(request.now)
        shown = len(execution.printed_lines)
        step = _go_on(execution, request.answer)
        return self._outcome(request.number, execution, clock, step, shown)

    def _program(self, request: Begin | Transform, environment: Environment) -> Program:
        if request.source is not None:
            self._programs[request.program] = request.source
            if len(self._programs) > PROGRAMS:
                self._programs.popitem(last=False)
        return compile_program(self._programs[request.program], environment)

    def _transform(self, request: Transform) -> Transformed:
        try:
            program = self._program(request, self._transforming)
        except HogSourceError as error:
            return Transformed([BodyRun(error=error.message)] * len(request.globals))
        shared = from_json(orjson.loads(request.shared))
        runs: list[BodyRun] = []
        used_s, size = 0.0, 0
        most_s = self._transforming.limits.time_s + self._grace_s
        for text in request.globals:
            signal.setitimer(signal.ITIMER_PROF, most_s)
            started = time.thread_time()
            try:
                run = _transformed(program, request.seed, shared, text)
            except MemoryError:
                self.spent = True
                limit = self._transforming.limits.memory_bytes
                run = BodyRun(error=memory_text(limit, limit))
            except HogRuntimeError as error:
                run = BodyRun(error=_clean(error.message))
            except Exception as error:
                run = BodyRun(error=f"Internal error: {type(error).__name__}: {error}"[:500])
            # Work around the program counts: it causes the conversion of a huge result.
            run.used_s = max(run.used_s, time.thread_time() - started)
            runs.append(run)
            used_s += run.used_s
            size += len(run.value or b"")
            if self.spent or used_s > TURN_S or size > TURN_BYTES:
                break
        signal.setitimer(signal.ITIMER_PROF, 0)
        return Transformed(runs)

    def _outcome(
        self,
        number: int,
        execution: HostedExecution,
        clock: _Clock,
        step: Finished | Suspended,
        shown: int,
    ) -> TurnOutcome:
        outcome = TurnOutcome(
            lines=[_clean(line) for line in execution.printed_lines[shown:]],
            loop_found=execution.loop_found,
            captured=None if execution.captured is None else json_of(execution.captured),
            answered=len(execution.calls),
            used_s=execution.used_s,
        )
        execution.loop_found = False
        if isinstance(step, Suspended):
            outcome.call, outcome.args = step.name, json_of(step.args)
            outcome.dropped = execution.context.dropped_lines
            outcome.journal = json_of(execution.journal())
            outcome.suspended = True
            self._hold(number, execution, clock)
            return outcome
        result = step.result
        outcome.dropped, outcome.steps, outcome.memory = result.dropped_lines, result.steps, result.memory
        if result.error is not None:
            outcome.error = _clean(result.error.message)
            outcome.retry_after_s = _retry_after_s(result.error)
        elif result.value is not None:
            try:
                outcome.value = json_of(to_json(result.value))
            except HogRuntimeError:  # too deep or too large to be shown; nobody needs to see it
                outcome.value = None
        return outcome

    def _hold(self, number: int, execution: HostedExecution, clock: _Clock) -> None:
        size = execution.context.memory
        self._suspended[number] = execution, clock, size
        self._suspended_bytes += size
        while len(self._suspended) > 1 and (
            len(self._suspended) > SUSPENDED_RUNS or self._suspended_bytes > SUSPENDED_BYTES
        ):
            self._drop(next(iter(self._suspended)))

    def _drop(self, number: int) -> tuple[HostedExecution, _Clock] | None:
        suspended = self._suspended.pop(number, None)
        if suspended is None:
            return None
        self._suspended_bytes -= suspended[2]
        return suspended[0], suspended[1]


def _transformed(program: Program, seed: str, shared: dict[str, Any], text: bytes) -> BodyRun:
    """Run a transformation on one event.

    Raises `HogRuntimeError` for values that cannot be converted.
    """
    variables = shared | from_json(orjson.loads(text))
    execution = Execution(program, variables, seed=f"{seed}{variables['event']['uuid']}")
    step = execution.start()
    if isinstance(step, Suspended):
        step = execution.fail(f"Unknown async function '{step.name}'")
    result = step.result
    run = BodyRun(
        lines=[_clean(line) for line in result.printed],
        used_s=result.duration_us / 1e6,
        returned=result.returned,
    )
    if result.error is not None:
        run.error = _clean(result.error.message)
        return run
    try:
        value = to_json(result.value)
        run.value = json_of(value) if is_truthy(value) else None
    except HogRuntimeError as error:
        run.error = _clean(error.message)
    if run.value is not None and len(run.value) > MAX_EVENT_BYTES:
        run.error = f"The transformed event has {len(run.value)} bytes; {MAX_EVENT_BYTES} are allowed"
        run.value = None
    return run


def _retry_after_s(error: ErrorInfo) -> float | None:
    """Return how long to wait before another attempt, by an uncaught ``RetryError``, whose payload may be seconds.

    None for other errors, `BY_POLICY` when it does not say.
    """
    if error.kind != "throw" or error.type != "RetryError":
        return None
    wanted = error.payload
    if isinstance(wanted, bool) or not isinstance(wanted, int | float) or not 0 <= wanted < math.inf:
        return BY_POLICY
    return float(wanted)


def _go_on(execution: HostedExecution, answer: bytes) -> Finished | Suspended:
    try:
        return execution.resume(orjson.loads(answer))
    except HogRuntimeError as error:  # nested deeper than values may be
        return execution.fail(f"The answer cannot be taken over: {error.message}")


def _clean(text: str) -> str:
    """Return a text that can be encoded: programs can cut strings inside a character."""
    return text.encode("utf-8", "replace").decode()


def _confine(memory_bytes: int) -> None:
    for kind, most in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))


class _Size:
    """Size of this process; None where the system does not tell."""

    def __init__(self) -> None:
        try:
            self._file: int | None = os.open("/proc/self/statm", os.O_RDONLY)
        except OSError:
            self._file = None

    def bytes(self) -> int:
        if self._file is None:
            return 0
        resident: int = int(os.pread(self._file, 100, 0).split()[1]) * resource.getpagesize()
        return resident


def _city_lookup(path: str) -> GeoIpLookup | None:
    """Return the lookup of cities by address for transformations; None when the database has become unreadable."""
    from hoglab.functions.runtime import GeoIp, GeoIpError

    try:
        return GeoIp(Path(path)).city
    except GeoIpError:
        return None


def main(fd: int, done: int, memory_bytes: int, limits: RunLimits, geoip: str | None) -> None:
    """Serve until the server closes its end, or until this process has become too large."""
    channel = socket.socket(fileno=fd)
    frames = Frames(channel)
    answers = Answers(channel, done)
    look_up = None if geoip is None else _city_lookup(geoip)
    table = RunTable(limits, look_up)
    size = _Size()
    ensure_stack()
    gc.collect()
    gc.freeze()
    gc.enable()
    _confine(memory_bytes)
    send(channel, TurnOutcome())
    while size.bytes() <= RETIRE_BYTES:
        for request in frames.requests():
            answers.begin()
            answer = table.answer(request)
            if answer is not None:
                answers.add(answer)
            if table.spent:
                break
        answers.send()
        if table.spent:
            return


if __name__ == "__main__":
    arguments = sys.argv[1:]
    try:
        fd, done, memory_bytes = map(int, arguments[:3])
        limits, geoip = arguments[3:7], arguments[7:]
        main(fd, done, memory_bytes, RunLimits.read(limits), geoip[0] if geoip else None)
    except (EOFError, ConnectionError):
        status = 0
    except MemoryError:
        status = 1
    else:
        status = 0
    # Nothing here needs cleaning up, and freeing what a program left in memory may take long.
    os._exit(status)
