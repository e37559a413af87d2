"""One of the processes that run bodies, as the server sees it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections import OrderedDict, deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge

import hoglab
from hoglab.delivery.bodies.protocol import (
    PROGRAMS,
    Begin,
    Forget,
    Frames,
    Request,
    Resume,
    RunLimits,
    Transform,
    send,
)
from hoglab.functions.environments import DESTINATION_LIMITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hoglab.delivery.bodies.protocol import Transformed, TurnOutcome

_KEPT = (
    "PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "LANG",
    "LC_ALL",
    "TZ",
    "TZDIR",
    "LD_LIBRARY_PATH",
)
"""Names of environment variables that a process gets: none of the server's settings, some of which are secret."""

PROCESSES = Gauge(
    "hoglab_delivery_body_processes", "Processes that run bodies, those of transformations among them."
)
DEATHS = Counter("hoglab_delivery_body_deaths", "Processes that died of a function's body.", ["reason"])

END_S = 0.5
"""Time in seconds for a process whose socket is closed to end before it is killed."""

_MOST_DONE = 1 << 16  # more than a pipe holds


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits for running bodies. Times in seconds.

    ``memory_bytes``: address space of a process, which holds many runs. ``time_s``: computing time of a run, over
    all its turns; ``calls``: number of calls of a run; ``program_bytes``: its memory, as the language accounts for
    it.

    ``grace_s``: computing time beyond the language's own limit after which a process is ended. ``stuck_s``: time on
    the wall for one run, for processes that hang without computing. ``idle_s``: time without work after which only
    one process is kept. ``batch``: maximum number of runs in one message, ``batch_shared`` while several functions
    have work. ``crashes``: how often a run may take its process down before it is given up.
    """

    time_s: float = DESTINATION_LIMITS.time_s
    calls: int = DESTINATION_LIMITS.async_steps
    program_bytes: int = DESTINATION_LIMITS.memory_bytes
    processes: int = 2
    memory_bytes: int = 1 << 30
    grace_s: float = 1.0
    stuck_s: float = 60.0
    idle_s: float = 60.0
    batch: int = 64
    batch_shared: int = 16
    crashes: int = 2


@dataclass(slots=True, eq=False)
class SuspendedRun:
    """A run that is suspended, alive, in a process."""

    child: Child
    number: int


@dataclass(slots=True, eq=False)
class Work:
    """A stretch of one run: from its start, or from its last call, which ``answer`` answers, to the next.

    ``globals`` and ``more`` (which wins) are JSON objects, ``now`` is Unix time in seconds. With ``suspended`` the
    suspended run continues in its process; if that is gone, ``journal`` brings another process to the same point.
    """

    run_id: str
    function_id: str
    source: str
    globals: bytes
    more: bytes
    journal: bytes | None = None
    now: float = 0.0
    answer: bytes | None = None
    suspended: SuspendedRun | None = None
    crashes: int = 0

    @property
    def size(self) -> int:
        """Approximate size of the message in bytes."""
        return len(self.globals) + len(self.more) + len(self.journal or b"") + len(self.answer or b"")


class Child:
    """A process and the socket to it. Used by one thread at a time."""

    def __init__(self, limits: BodyLimits, geoip: Path | None = None) -> None:
        """Start the process; messages sent before it is ready wait in the socket.

        ``geoip`` is the database of `geoipLookup`.
        """
        self._limits = limits
        self._programs: OrderedDict[str, int] = OrderedDict()
        self._numbers = 0
        self.ready = False
        self.forgotten: deque[int] = deque()
        ours, theirs = socket.socketpair()
        with theirs:
            self.process, self._done = _started(theirs.fileno(), limits, geoip)
        PROCESSES.inc()
        self._channel = ours
        self._frames = Frames(ours)
        ours.settimeout(limits.stuck_s)

    def send(self, works: Sequence[Work]) -> list[int]:
        """Send some work. Return the numbers of the runs. Raises `OSError` when the process is gone."""
        requests: list[Request] = []
        forgotten = []
        while self.forgotten:
            forgotten.append(self.forgotten.popleft())
        if forgotten:
            requests.append(Forget(forgotten))
        numbers = []
        for work in works:
            request = self._request(work)
            requests.append(request)
            numbers.append(request.number)
        self._say(requests)
        return numbers

    def done(self) -> int:
        """Return the number of requests of the last message that are done, whether or not their answers came."""
        with contextlib.suppress(BlockingIOError):
            return len(os.read(self._done, _MOST_DONE))
        return 0

    def outcome(self) -> TurnOutcome:
        """Return the next answer. Raises `EOFError` or `OSError` when there will be none."""
        self._await_ready()
        return self._frames.outcome()

    def begin_transforming(self, source: str, seed: str, shared: bytes, events: list[bytes]) -> None:
        """Send some events; `transformed` has the results. Raises `OSError` when the process is gone."""
        program, text = self._known(source)
        self._say([Transform(program, text, seed, shared, events)])

    def transformed(self) -> Transformed:
        """Return the next answer. Raises `EOFError` or `OSError` when there will be none."""
        self._await_ready()
        return self._frames.transformed()

    def _say(self, requests: list[Request]) -> None:
        self.done()  # those of messages before this one
        send(self._channel, requests)

    def _await_ready(self) -> None:
        if not self.ready:
            self._frames.outcome()  # says only that the process has started
            self.ready = True

    def end(self) -> int:
        """End the process, if it has not ended by itself. Return its status, negative for a signal. Called once."""
        PROCESSES.dec()
        self._channel.close()
        os.close(self._done)
        try:
            return self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)

    def _request(self, work: Work) -> Begin | Resume:
        suspended = work.suspended
        if suspended is not None and suspended.child is self and work.answer is not None:
            return Resume(suspended.number, work.answer, work.now)
        self._numbers += 1
        run = self._numbers
        program, text = self._known(work.source)
        return Begin(
            run,
            program,
            text,
            work.run_id,
            work.globals,
            work.more,
            work.now,
            work.journal,
            work.answer,
        )

    def _known(self, source: str) -> tuple[int, str | None]:
        """Return the number of a program, and its source if the process does not have it yet."""
        number = self._programs.get(source)
        if number is not None:
            return number, None
        self._numbers += 1
        self._programs[source] = self._numbers
        if len(self._programs) > PROGRAMS:
            self._programs.popitem(last=False)
        return self._numbers, source


def _started(channel: int, limits: BodyLimits, geoip: Path | None) -> tuple[subprocess.Popen[bytes], int]:
    """Return a process that serves a socket, and a file from which a byte can be read for each finished request."""
    # -P: the directory that the server was started in is no place to import from.
    command = [sys.executable, "-P", "-m", "hoglab.delivery.bodies.process"]
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    paths = [str(Path(hoglab.__file__).parents[1]), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    done, theirs = os.pipe()
    command += [str(number) for number in (channel, theirs, limits.memory_bytes)]
    command += RunLimits(limits.grace_s, limits.time_s, limits.calls, limits.program_bytes).texts()
    command += [] if geoip is None else [str(geoip.absolute())]
    try:
        for end in (done, theirs):
            os.set_blocking(end, False)
        process = subprocess.Popen(  # noqa: S603 - our own interpreter, nothing of what users write
            command,
            pass_fds=(channel, theirs),
            stdin=subprocess.DEVNULL,
            env=environment,
            process_group=0,  # Ctrl-C is for the server
        )
    except BaseException:
        os.close(done)
        raise
    finally:
        os.close(theirs)
    return process, done
