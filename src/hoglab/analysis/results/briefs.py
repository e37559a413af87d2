"""Verdicts that lists of experiments show: those of complete results, remembered, and computed in the background."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from hoglab.analysis.cancellation import current_cancellation
from hoglab.analysis.timeseries.query_cache import PreparedQuery
from hoglab.http.errors import WireError

if TYPE_CHECKING:
    from hoglab.analysis.definitions import ExperimentInputs
    from hoglab.analysis.timeseries.query_cache import QueryRunner
    from hoglab.http.identity import Project

FRESH_FOR = timedelta(minutes=10)
"""Age above which a list has the verdict on a running experiment computed again."""
FRESH_ENDED_FOR = timedelta(days=1)
"""Age above which a list has the verdict on an ended experiment computed again."""
FRESH_EMPTY_FOR = timedelta(minutes=1)
"""Age above which it is looked again whether an experiment has people: a zero is read as a fault."""
MAX_BRIEFS = 2_000
"""Maximum number of remembered verdicts; the ones unused for longest are dropped first."""
MAX_WAITING = 200
"""Maximum number of experiments that wait for their verdict; a list asks for further ones later."""
ROUND_S = 30.0
"""Time after which a round of computations ends; the next request begins another one."""


@dataclass(frozen=True, slots=True)
class Brief:
    """The verdict on one experiment at one moment."""

    inputs: object
    """Everything of the experiment that decides the verdict, besides events and time."""
    at: datetime
    people: int | None
    """Number of exposed people; None where they could not be counted."""
    verdict: Mapping[str, Any] | None
    """Verdict as on the wire; None where there is none."""


class Briefs:
    """The newest verdict on each experiment, in memory. Thread-safe."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._briefs: OrderedDict[int, Brief] = OrderedDict()

    def note(
        self, inputs: ExperimentInputs, at: datetime, people: int | None, verdict: Mapping[str, Any] | None
    ) -> None:
        """Remember the verdict on an experiment, or that there is none; ``at`` is when its computation began."""
        brief = Brief(_decisive(inputs), at, people, verdict)
        with self._lock:
            self._briefs[inputs.row.id] = brief
            self._briefs.move_to_end(inputs.row.id)
            while len(self._briefs) > MAX_BRIEFS:
                self._briefs.popitem(last=False)

    def of(self, inputs: ExperimentInputs) -> Brief | None:
        """Return the newest verdict on an experiment as it is set up now; None when it is not known."""
        with self._lock:
            brief = self._briefs.get(inputs.row.id)
        return brief if brief is not None and brief.inputs == _decisive(inputs) else None

    def is_fresh(self, brief: Brief, *, ended: bool) -> bool:
        """Return whether a verdict need not be computed again for a list."""
        fresh_for = FRESH_ENDED_FOR if ended else FRESH_FOR if brief.people else FRESH_EMPTY_FOR
        return self._now() - brief.at < fresh_for


def _decisive(inputs: ExperimentInputs) -> object:
    row, flag = inputs.row, inputs.flag
    return row.updated_at, None if flag is None else flag.updated_at, inputs.identity


class BriefWriter:
    """Computes verdicts for lists, one after the other and in one thread, so that pages need not wait. Thread-safe."""

    def __init__(self, queries: QueryRunner, read: Callable[[Project, int], object]) -> None:
        """Take the function ``read`` that computes the results of an experiment, and so notes its verdict."""
        self._queries = queries
        self._read = read
        self._lock = threading.Lock()
        self._waiting: OrderedDict[tuple[int, int], Project] = OrderedDict()
        self._current: tuple[int, int] | None = None

    def want(self, project: Project, experiment_ids: list[int]) -> None:
        """Have verdicts computed in the background, as far as there is room."""
        with self._lock:
            for experiment_id in experiment_ids:
                key = (project.id, experiment_id)
                if len(self._waiting) < MAX_WAITING and key != self._current:
                    self._waiting.setdefault(key, project)
        if experiment_ids:
            today = datetime.now(UTC).date()
            with suppress(WireError):  # the next request for a list tries again
                self._queries.submit(PreparedQuery("briefs", today, self._write, is_cacheable=False))

    def _write(self) -> dict[str, Any]:
        deadline = time.monotonic() + ROUND_S
        cancellation = current_cancellation()
        while time.monotonic() < deadline and not (cancellation is not None and cancellation.requested):
            with self._lock:
                if not self._waiting:
                    break
                self._current, project = self._waiting.popitem(last=False)
            try:
                with suppress(WireError):
                    self._read(project, self._current[1])
            finally:
                self._current = None
        return {}
