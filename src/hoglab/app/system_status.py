"""One look at how a server is doing: what its parts have measured, put together."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY
from sqlalchemy import select

from hoglab import __version__
from hoglab.analysis.timeseries.store import active_jobs
from hoglab.app.status_warnings import FunctionTroubles, StatusLimits, warnings_of
from hoglab.storage.database.tables import metric_result
from hoglab.storage.directory import BESIDE

if TYPE_CHECKING:
    from hoglab.app.ingestion import IngestionView
    from hoglab.delivery.service import Delivery
    from hoglab.http.health import Problem
    from hoglab.http.streams import Streams
    from hoglab.storage.engines import Engines

RATE_WINDOW_S = 60.0
"""Rates are those since the last look, but not of less than a second nor of more than this."""

MEASURES = (
    "hoglab_delivery_body_processes",
    "hoglab_ingestion_events_total",
)
RECENT_RESULTS = 100
"""Among how many results, the newest, an error is looked for."""

_NEWEST = (
    select(metric_result.c.id, metric_result.c.error_message)
    .order_by(metric_result.c.id.desc())
    .limit(RECENT_RESULTS)
    .subquery()
)
_LAST_ERROR = (
    select(_NEWEST.c.error_message)
    .where(_NEWEST.c.error_message.is_not(None))
    .order_by(_NEWEST.c.id.desc())
    .limit(1)
)


@dataclass(slots=True)
class _Rate:
    """Rate of growth of a number that only grows, as far as looks at it tell."""

    clock: Callable[[], float]
    _seen: list[tuple[float, float]] = field(default_factory=list)

    def of(self, total: float) -> float:
        now = self.clock()
        while len(self._seen) > 1 and self._seen[1][0] <= now - 1.0:
            self._seen.pop(0)
        self._seen.append((now, total))
        since, before = self._seen[0]
        return max(0.0, total - before) / max(1.0, min(now - since, RATE_WINDOW_S))


class SystemStatus:
    """Looks at a server. Called from any thread."""

    def __init__(
        self,
        engines: Engines,
        delivery: Delivery,
        streams: Streams,
        ingestion: IngestionView,
        *,
        data: Path,
        limits: StatusLimits,
        problems: Callable[[], Sequence[Problem]],
    ) -> None:
        self._engines = engines
        self._delivery = delivery
        self._streams = streams
        self._data = data
        self._limits = limits
        self._ingestion = ingestion
        self._problems = problems
        self._rate = _Rate(time.monotonic)
        self._started_at = datetime.now(UTC)

    def look(self) -> dict[str, Any]:
        """Return values of `hoglab.http.system_status.SystemStatusOut`. Takes a few milliseconds."""
        engines, measured = self._engines, _measured()
        problems = self._problems()
        reasons = [str(problem) for problem in problems if problem.blocks]
        lag_s, waiting = round(self._ingestion.lag_s(), 1), self._ingestion.waiting()
        figures: dict[str, Any] = {
            "version": __version__,
            "started_at": self._started_at,
            "ready": not reasons,
            "reasons": reasons,
            "event_log": {
                "waiting_records": waiting,
                "waiting_bytes": engines.accepting.pending_bytes(),
                "limit_bytes": self._limits.log_bytes,
                "oldest_s": lag_s if waiting else None,
            },
            "ingestion": {
                "events_per_s": round(self._rate.of(measured["hoglab_ingestion_events_total"]), 1),
                "lag_s": lag_s,
            },
            "delivery": self._queue(),
            "results": self._results(),
            "functions": {
                "processes": round(measured["hoglab_delivery_body_processes"]),
                "busy": self._delivery.bodies.busy(),
            },
            "storage": _sizes(self._data),
            "disk_free_bytes": shutil.disk_usage(self._data).free,
            "memory_bytes": _memory_bytes(),
            "streams": self._streams.count,
        }
        delivery = self._delivery
        troubles = FunctionTroubles(
            delivery.function_breakers.restrained(), delivery.breakers.open_anywhere()
        )
        warnings = [_warning(problem) for problem in problems]
        return figures | {"warnings": warnings + warnings_of(figures, troubles, self._limits)}

    def _queue(self) -> dict[str, Any]:
        """Return the state of the queue, of all processes that share it."""
        stats = self._delivery.queue.counts.stats()
        oldest, now = stats.oldest_due_at, self._delivery.now()
        return {
            "waiting": stats.available,
            "running": stats.running,
            "dead": stats.dead_letters,
            "oldest_due_s": None if oldest is None else round(max(0.0, (now - oldest).total_seconds()), 1),
        }

    def _results(self) -> dict[str, Any]:
        with self._engines.database.read() as connection:
            return {
                "running": len(active_jobs(connection)),
                "last_error": connection.scalar(_LAST_ERROR),
            }


def _measured() -> dict[str, float]:
    """Return measures that the parts of the server keep up to date for Prometheus."""
    registry = REGISTRY.restricted_registry(MEASURES)
    return {sample.name: sample.value for family in registry.collect() for sample in family.samples}


def _sizes(data: Path) -> list[dict[str, Any]]:
    """Return the files of a data directory, each with what its engine keeps beside it, the largest first."""
    sizes: dict[str, int] = {}
    for path in data.iterdir():
        with suppress(OSError):  # gone meanwhile
            name = next((path.name.removesuffix(end) for end in BESIDE if path.name.endswith(end)), path.name)
            if path.is_dir():
                size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
            elif path.is_file():
                size = path.stat().st_size
            else:
                continue
            sizes[name] = sizes.get(name, 0) + size
    ordered = sorted(sizes.items(), key=lambda item: -item[1])
    return [{"name": name, "bytes": size} for name, size in ordered if size]


def _memory_bytes() -> int:
    """Return the memory of the process in bytes; 0 where the system does not tell."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _warning(problem: Problem) -> dict[str, Any]:
    message, _, hint = problem.text.rpartition(": ")
    return {
        "code": problem.component.replace(" ", "_"),
        "message": message or hint,
        "hint": hint if message else None,
    }
