"""The background service that looks for certain harm in running experiments, and raises the alarm.

The test for harm may be read at any time, so looking often costs no error (`hoglab.statistics.verdict.harm`). An
experiment is looked at when it has become a tenth older than at the last look, every hour at most and once a day at
least. Of several processes one looks, and each variant is told of once.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import structlog

from hoglab.analysis.definitions import is_computed
from hoglab.background import BackgroundService
from hoglab.experiments import store as experiments
from hoglab.experiments.records import keeping
from hoglab.experiments.records.keeping import Harm
from hoglab.http.errors import WireError
from hoglab.statistics.verdict import Action
from hoglab.storage.job_leases import JobLostError, JobName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hoglab.analysis.definitions import ExperimentInputs
    from hoglab.analysis.results.gathering import ExperimentResults
    from hoglab.analysis.timeseries import ResultsService
    from hoglab.experiments.linkage import FlagLinkage
    from hoglab.experiments.store import ExperimentRow

LEAST_WAIT, LONGEST_WAIT = timedelta(hours=1), timedelta(days=1)
"""Shortest and longest time between two looks at an experiment."""
OF_AGE = 0.1
"""Time to the next look, as a share of the experiment's age at the last one."""
CHECK_INTERVAL_S = 60.0
"""Interval at which the watch searches for experiments that are due."""
JOB = "harm watch"

_log = structlog.get_logger(__name__)


class HarmWatch(BackgroundService):
    """Background service that looks for harm. `run_once` may also be called by itself."""

    NAME = "harm-watch"

    def __init__(self, service: ResultsService, results: ExperimentResults, linkage: FlagLinkage) -> None:
        """Take the reader of whole results, which has to compute everything before it answers."""
        super().__init__()
        self._service = service
        self._results = results
        self._linkage = linkage

    def round(self) -> float:
        self.run_once()
        return CHECK_INTERVAL_S

    def run_once(self) -> int:
        """Look at every experiment that is due; return the number of alarms."""
        with self._service.database.read() as connection:
            rows = experiments.running(connection)
        alarms = 0
        for row in rows:
            if self.is_stopping:
                break
            if is_due(row, self._service.now()):
                try:
                    alarms += self._look(row)
                except Exception:  # others are looked at all the same
                    _log.exception("harm_not_looked_for", experiment_id=row.id)
        return alarms

    def _look(self, row: ExperimentRow) -> bool:
        """Look at one experiment; return whether it raised the alarm."""
        with self._service.jobs.claimed(JobName(JOB, str(row.id))) as lease:
            inputs = None if lease is None else self._service.plan_of_running(row.id)
            # Another process may have looked since the row was read.
            if lease is None or inputs is None or not is_due(inputs.row, self._service.now()):
                return False
            began = self._service.now()
            harm = self._harm(inputs)
            try:
                with self._service.jobs.writing(lease, rebuildable=None) as tx:
                    present = experiments.get(tx.connection, inputs.project.id, row.id)
                    is_told = False
                    if present is not None and _same_launch(present, inputs.row):
                        experiments.update(tx.connection, row.id, {"watched_at": began})
                        keeping.keep_plan(
                            tx, inputs.project, present, is_launch=False, user_id=None, now=began
                        )
                        if harm is not None:
                            is_told = keeping.raise_alarm(
                                tx, self._linkage, inputs.project, present, harm, began
                            )
                    self._service.jobs.end(tx, lease)
            except JobLostError as lost:
                _log.warning("harm_not_stored", experiment_id=row.id, reason=str(lost))
                return False
        if is_told and harm is not None:
            _log.warning("experiment_harm", experiment_id=row.id, variants=harm.variants)
        return is_told

    def _harm(self, inputs: ExperimentInputs) -> Harm | None:
        """Return the certain harm of an experiment; None without any, and where it cannot be known now."""
        if inputs.flag is None or not inputs.flag.active or inputs.flag.deleted:
            return None
        if not any(shown.role != "secondary" and is_computed(shown.metric) for shown in inputs.shown):
            return None
        try:
            verdict = self._results.read(inputs.project, inputs.row.id)["verdict"]
        except WireError as error:
            _log.warning("harm_not_computed", experiment_id=inputs.row.id, reason=str(error))
            return None
        return None if verdict is None else harm_of(verdict)


def is_due(row: ExperimentRow, now: datetime) -> bool:
    """Return whether a running experiment is to be looked at; the start counts as a look."""
    if row.start_date is None or row.end_date is not None:
        return False
    last = row.start_date if row.watched_at is None else row.watched_at
    wait = min(max((last - row.start_date) * OF_AGE, LEAST_WAIT), LONGEST_WAIT)
    return now >= last + wait


def harm_of(verdict: Mapping[str, Any]) -> Harm | None:
    """Return the certain harm that a verdict on the wire tells of; None where it tells of none."""
    if verdict["next_action"]["code"] != Action.STOP_FOR_HARM:
        return None
    variants = tuple(reason["variant"] for reason in verdict["reasons"] if reason["code"] == "harm")
    return Harm(variants, verdict) if variants else None


def _same_launch(present: ExperimentRow, looked_at: ExperimentRow) -> bool:
    return present.is_running and not present.deleted and present.start_date == looked_at.start_date
