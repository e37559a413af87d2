"""One program on one event: its turns, and what they print, cost and capture (spec: hog-runtime 4.4, 4.7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hoglab.delivery.calls import HostedExecution
from hoglab.delivery.state import Timing
from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.context import TRUNCATED
from hoglab.hog.rt.numbers import format_number
from hoglab.hog.run import Finished, Result, Suspended

if TYPE_CHECKING:
    from hoglab.hog.program import Program

MAX_MESSAGE_CHARS = 10_000
"""Log messages beyond this are cut."""
MAX_ERROR_CHARS = 4_096
"""Length of the error that is kept with a result."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log. ``level``: debug, info, warn or error."""

    level: str
    text: str
    at: datetime


def clipped(text: str, limit: int = MAX_MESSAGE_CHARS) -> str:
    """A text that is not longer than ``limit``, with a mark where it was cut."""
    most = limit - len(TRUNCATED)
    return text[:most] + TRUNCATED if len(text) > most else text


def two_digits(number: float) -> str:
    """A number rounded to two significant digits: ``210``, ``0.84``."""
    return format_number(float(f"{number:.2g}"))


class ProgramRun:
    """Runs a program step by step. ``globals_`` are Hog values, inputs among them.

    `start` and `resume` return the call that the program waits for, None when it has ended. A ``journal``
    repeats what an earlier run did up to its call. ``timings`` are those of earlier turns; new ones are added.
    """

    def __init__(
        self,
        program: Program,
        globals_: Mapping[str, Any],
        *,
        run_id: str,
        redact: Callable[[str], str],
        now: Callable[[], datetime],
        journal: Mapping[str, Any] | None = None,
        timings: list[Timing] | None = None,
    ) -> None:
        self.lines: list[Line] = []
        self.timings = [] if timings is None else timings
        self.result: Result | None = None
        self.error: str | None = None
        self._event: Mapping[str, Any] = globals_["event"]
        self._redact = redact
        self._now = now
        self.execution = HostedExecution(
            program, globals_, seed=run_id, clock=lambda: now().timestamp(), journal=journal
        )
        self.execution.run_id = run_id
        self.execution.event = self._event
        self.execution.person = globals_.get("person")
        self._shown = 0
        self._dropped = 0
        self._used_s = self.execution.used_s

    # --- turns

    def start(self) -> Suspended | None:
        return self._after(self.execution.start())

    def resume(self, answer: Any) -> Suspended | None:
        try:
            return self._after(self.execution.resume(answer))
        except HogRuntimeError as error:  # nested deeper than values may be
            return self._after(self.execution.fail(f"The answer cannot be taken over: {error.message}"))

    def fail(self, message: str) -> None:
        """End a program that waits for something that cannot be done."""
        self._after(self.execution.fail(message))

    @property
    def captured(self) -> dict[str, Any] | None:
        """The event that the program captured."""
        return self.execution.captured

    @property
    def calls_made(self) -> int:
        """How many calls of the host have been answered."""
        return len(self.execution.calls)

    def _after(self, step: Finished | Suspended) -> Suspended | None:
        execution = self.execution
        used_s = execution.used_s
        self.timings.append(Timing("hog", round(max(0.0, used_s - self._used_s) * 1000, 3)))
        self._used_s = used_s
        if isinstance(step, Suspended):
            self._take_lines(execution.context.dropped_lines)
            return step
        self._take_lines(step.result.dropped_lines)
        self.result = step.result
        if step.result.error is not None:
            self.error = self.cleaned(step.result.error.message)
        return None

    def _take_lines(self, dropped: int) -> None:
        lines = self.execution.printed_lines
        for text in lines[self._shown :]:
            self.log("info", text)
        self._shown = len(lines)
        if dropped > self._dropped:
            self._dropped = dropped
            uuid = self._event["uuid"]
            self.log(
                "warn",
                f"Function exceeded maximum log entries. No more logs will be collected. Event: {uuid}",
            )
        if self.execution.loop_found:
            self.execution.loop_found = False
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
        """Say that the program ended with an error."""
        self.log("error", f"Error executing function on event {self._event['uuid']}: {error}")

    def log_completion(self) -> None:
        """Say that the program came to its end, and what it took."""
        result = self.result
        if result is None:
            return
        sync_ms = sum(each.duration_ms for each in self.timings if each.kind == "hog")
        text = f"Function completed in {two_digits(self.total_ms)}ms. Sync: {two_digits(sync_ms)}ms."
        text += f" Mem: {two_digits(result.memory / 1024)}kb. Ops: {result.steps}."
        if self._event.get("url"):
            text += f" Event: '{self._event['url']}'"
        self.log("debug", text)

    @property
    def total_ms(self) -> float:
        return sum(each.duration_ms for each in self.timings)
