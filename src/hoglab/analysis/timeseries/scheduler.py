"""The background service of results: daily points on schedule and after a launch, and recalculations."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import structlog

from hoglab.analysis.query.scope import exclusive
from hoglab.analysis.timeseries import store
from hoglab.analysis.timeseries.attempts import was_stopped
from hoglab.analysis.timeseries.recalculations import Recalculations
from hoglab.background import BackgroundService
from hoglab.storage.catching_up import Awaiting, CatchUp

if TYPE_CHECKING:
    from hoglab.analysis.definitions import ExperimentInputs
    from hoglab.analysis.timeseries.service import ResultsService

DEFAULT_TIMES = ("02:00:00",)
"""Times at which the points of every running experiment are computed, in UTC."""
CHECK_INTERVAL_S = 30.0
"""Interval at which the runner searches for work that it was not notified of."""
CATCH_UP_CHECK_S = 0.2
"""Interval at which the runner checks whether the events before a recalculation are stored."""
LOOK_AT_ENDED = timedelta(hours=1)
"""Interval at which the runner checks whether late events or merges change an ended experiment's results."""

_log = structlog.get_logger(__name__)


class ResultsRunner(BackgroundService):
    """Background service that computes the results that are due."""

    NAME = "results"

    def __init__(
        self,
        service: ResultsService,
        *,
        check_interval_s: float = CHECK_INTERVAL_S,
        catch_up: CatchUp | None = None,
    ) -> None:
        """Take the runner's services; ``catch_up`` waits for the events acknowledged before a recalculation."""
        super().__init__()
        self._service = service
        self._awaiting: Awaiting[tuple[int, str]] = Awaiting(catch_up, itemgetter(0))
        self._recalculations = Recalculations(service)
        self._interval_s = check_interval_s
        self._unsubscribe: Any = None

    def start(self) -> None:
        self._unsubscribe = self._service.database.changes.subscribe(
            "experiments", lambda _project_id: self.wake()
        )
        super().start()

    def interrupt(self) -> None:
        """Leave all work but the running statement."""
        if self._unsubscribe is not None:
            self._unsubscribe()

    def round(self) -> float:
        self.run_once()
        return CATCH_UP_CHECK_S if self._awaiting else self._interval_s

    def run_once(self) -> int:
        """Do all work that is due now; return the number of computed series and results."""
        computed = 0
        with self._service.database.read() as connection:
            jobs = store.active_jobs(connection)
        for job in jobs:
            if self.is_stopping:
                return computed
            computed += self._service.run_job(job)
        waiting = {(project_id, job.id): job for project_id, job in self._recalculations.waiting()}
        for recalculation in map(waiting.__getitem__, self._awaiting.ready(list(waiting))):
            if self.is_stopping:
                return computed
            computed += self._recalculations.run(recalculation, lambda: self.is_stopping)
        for inputs, metric in self._due():
            if self.is_stopping:
                break
            try:
                self._service.series.refresh(inputs, metric, due=partial(self._is_due, inputs, metric))
            except Exception:  # the others are still computed
                _log.exception("results_refresh_failed", experiment_id=inputs.row.id)
            computed += 1
        return computed

    def _due(self) -> Iterator[tuple[ExperimentInputs, dict[str, Any]]]:
        """Yield metrics whose newest point is older than the last scheduled time, or that have none."""
        for inputs in self._service.plans():
            for metric in inputs.metrics:
                if self._is_due(inputs, metric):
                    yield inputs, metric

    def _is_due(self, inputs: ExperimentInputs, metric: dict[str, Any]) -> bool:
        """Return whether the points of a metric are due now.

        Computations that did not end wait; those ended by a stop of the server are repeated after the wait.
        """
        now, series = self._service.now(), self._service.series
        span, key = inputs.span(now), inputs.key(metric)
        if span is None:
            return False
        tries = series.attempts.of(key)
        if series.attempts.has_to_wait(tries):
            return False
        if was_stopped(tries):
            return True
        with self._service.database.read() as connection:
            newest = store.newest(connection, key, exclusive(span.end))
        return newest is None or not (
            newest.tried >= last_scheduled(inputs.project.experiment_defaults, now)
            or series.is_final(inputs, metric, newest, looked=LOOK_AT_ENDED)
        )


def last_scheduled(defaults: Any, now: datetime) -> datetime:
    """Return the latest scheduled time that is not after ``now`` (spec experiment-results 7.1)."""
    texts = defaults.get("experiment_recalculation_times") if isinstance(defaults, dict) else None
    if not isinstance(texts, list) or not texts:
        single = defaults.get("experiment_recalculation_time") if isinstance(defaults, dict) else None
        texts = [single] if isinstance(single, str) else list(DEFAULT_TIMES)
    hours = {hour for text in texts if (hour := _hour(text)) is not None} or {2}
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    moments = [midnight + timedelta(days=day, hours=hour) for day in (-1, 0) for hour in hours]
    return max(moment for moment in moments if moment <= now)


def _hour(text: object) -> int | None:
    head = text.partition(":")[0] if isinstance(text, str) else ""
    return int(head) if head.isascii() and head.isdigit() and int(head) < 24 else None
