"""One program on one event: its turns, and its output, cost and captured event (spec: hog-runtime 4.4, 4.7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from hoglab.delivery.bodies.pool import BodyPool
from hoglab.delivery.bodies.protocol import TurnOutcome, json_of
from hoglab.delivery.execution.answers import Postponed
from hoglab.delivery.runs.globals import milliseconds
from hoglab.delivery.runs.state import NOTHING, Timing
from hoglab.hog.values import TRUNCATED, format_number

if TYPE_CHECKING:
    from hoglab.delivery.bodies.child import SuspendedRun, Work

MAX_MESSAGE_CHARS = 10_000
"""Maximum length of a log message; longer ones are cut."""
MAX_ERROR_CHARS = 4_096
"""Maximum length of the error that is kept with a result."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log. ``level``: debug, info, warn or error."""

    level: str
    text: str
    at: datetime


def clipped(text: str, limit: int = MAX_MESSAGE_CHARS) -> str:
    """Return a text of at most ``limit`` characters, with a mark where it was cut."""
    most = limit - len(TRUNCATED)
    return text[:most] + TRUNCATED if len(text) > most else text


def two_digits(number: float) -> str:
    """Return a number rounded to two significant digits: ``210``, ``0.84``."""
    text = f"{number:.2g}"
    return format_number(float(text)) if "e" in text else text


class EventFacts(msgspec.Struct):
    """Facts about the run's event that the server itself needs."""

    uuid: str = ""
    distinct_id: Any = ""
    url: str | None = None
    captured_at: str | None = None


class KnownGlobals(msgspec.Struct):
    """Stored globals, of which only the event is decoded here; programs get all of them unchanged."""

    event: EventFacts
    person: msgspec.Raw = NOTHING
    groups: msgspec.Raw = NOTHING


_known = msgspec.json.Decoder(KnownGlobals)


def known_globals(globals_: msgspec.Raw) -> KnownGlobals:
    """Return stored globals. Raises `msgspec.DecodeError`."""
    return _known.decode(globals_)


@dataclass(frozen=True, slots=True)
class PendingCall:
    """Call that a program waits for: ``name(*args)``, in plain JSON data."""

    name: str
    args: list[Any]


class ProgramRun:
    """One run of a program, as the server sees it; a process of `hoglab.delivery.bodies` does the computing.

    `start` and `resume` return the work for it, `take` its outcome: the call that the program waits for, None when
    it has ended. A journal in its ``work`` repeats what an earlier run did up to its call. ``timings`` are those of
    earlier turns; new ones are added.
    """

    def __init__(
        self,
        work: Work,
        event: EventFacts,
        redact: Callable[[str], str],
        now: Callable[[], datetime],
        *,
        timings: list[Timing],
    ) -> None:
        self.source = work.source
        self.lines: list[Line] = []
        self.timings = timings
        self.error: str | None = None
        self.refused: str | None = None
        """Reason for which the program cannot be run at all."""
        self.crashed = False
        self.postponed: Postponed | None = None
        """The wish of a program that ended with ``RetryError``."""
        self.captured: dict[str, Any] | None = None
        """The event that the program captured."""
        self.calls_made = 0
        """Number of calls to the host that have been answered."""
        self.value: Any = None
        """Value that the program returned, as plain JSON data."""
        self.event = event
        self._redact = redact
        self._now = now
        self._work = work
        self._end: TurnOutcome | None = None
        self._dropped = 0
        self._used_s = 0.0 if work.journal is None else _Used.of(work.journal)

    # --- turns

    def start(self) -> Work:
        return self._at_this_time()

    def resume(self, answer: Any) -> Work:
        self._work.answer = json_of(answer)
        return self._at_this_time()

    def take(self, outcome: TurnOutcome) -> PendingCall | None:
        """Record the outcome of the work. Return the call that the program waits for, if it waits."""
        self.timings.append(Timing("hog", round(max(0.0, outcome.used_s - self._used_s) * 1000, 3)))
        self._used_s = outcome.used_s
        self.refused = outcome.refused
        self.crashed = outcome.crashed
        self.calls_made = outcome.answered
        if outcome.captured is not None:
            self.captured = self._event_of(outcome.captured)
        self._take_lines(outcome)
        work = self._work
        work.answer, work.crashes = None, 0
        if outcome.call is not None:
            work.journal = outcome.journal
            return PendingCall(outcome.call, orjson.loads(outcome.args))
        self._end = outcome
        if outcome.error is not None:
            self.error = self.cleaned(outcome.error)
            if outcome.retry_after_s is not None:
                after_s = None if outcome.retry_after_s < 0 else outcome.retry_after_s
                self.postponed = Postponed(self.error, after_s)
        elif outcome.value is not None:
            self.value = orjson.loads(outcome.value)
        return None

    def fail(self, message: str) -> None:
        """End a program that waits for a call that is impossible."""
        self.close()
        self.error = self.cleaned(message)

    def close(self) -> None:
        """Release a program that is not continued in this turn."""
        suspended, self._work.suspended = self._work.suspended, None
        if suspended is not None:
            BodyPool.forget(suspended)

    def begin_again(self) -> None:
        """Let go of the program, and of the answers that it got."""
        self.close()
        self._work.journal = None

    @property
    def journal(self) -> bytes | None:
        """Return the journal that brings another run of the program to the call that this one waits for."""
        return self._work.journal

    @property
    def suspended(self) -> SuspendedRun | None:
        """The suspended program, while it is alive in its process."""
        return self._work.suspended

    def _at_this_time(self) -> Work:
        self._work.now = self._now().timestamp()
        return self._work

    def _event_of(self, captured: bytes) -> dict[str, Any]:
        event: dict[str, Any] = orjson.loads(captured)
        event["timestamp"] = milliseconds(datetime.fromtimestamp(event["timestamp"], UTC))
        return event

    def _take_lines(self, outcome: TurnOutcome) -> None:
        for text in outcome.lines:
            self.log("info", text)
        if outcome.dropped > self._dropped:
            self._dropped = outcome.dropped
            uuid = self.event.uuid
            self.log(
                "warn",
                f"Function exceeded maximum log entries. No more logs will be collected. Event: {uuid}",
            )
        if outcome.loop_found:
            self.log(
                "warn",
                "postHogCapture was not performed: the event of this run comes from a long chain of functions, "
                "which looks like an endless loop.",
            )

    # --- logs

    def cleaned(self, text: str) -> str:
        return self._redact(text)

    def log(self, level: str, text: str) -> None:
        self.lines.append(Line(level, clipped(self._redact(text)), self._now()))

    def log_error(self, error: str) -> None:
        """Log that the program ended with an error."""
        self.log("error", f"Error executing function on event {self.event.uuid}: {error}")

    def log_completion(self) -> None:
        """Log that the program completed, and its cost."""
        end = self._end
        if end is None:
            return
        sync_ms = sum(timing.duration_ms for timing in self.timings if timing.kind == "hog")
        text = f"Function completed in {two_digits(self.total_ms)}ms. Sync: {two_digits(sync_ms)}ms."
        text += f" Mem: {two_digits(end.memory / 1024)}kb. Ops: {end.steps}."
        if self.event.url:
            text += f" Event: '{self.event.url}'"
        self.log("debug", text)

    @property
    def total_ms(self) -> float:
        return sum(timing.duration_ms for timing in self.timings)


class _Used(msgspec.Struct):
    """The part of a journal that gives the computing time of its turns."""

    used_s: float = 0.0

    @classmethod
    def of(cls, journal: bytes) -> float:
        return _used.decode(journal).used_s


_used = msgspec.json.Decoder(_Used)
