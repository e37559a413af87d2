"""Telling the owners of projects which requests of theirs capture refused.

The client alone hears of a refusal, and whoever sends events seldom reads what its SDK logs. So each reason becomes an
ingestion warning of the project whose token the request had: one an hour for a path and a reason, with the number of
requests. Requests without a known token belong to nobody, and those that are answered with 5xx come again.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID, uuid5

import sqlalchemy as sa

from hoglab.http.fields.dates import utc_now
from hoglab.patterns import searched
from hoglab.storage.collecting import CollectingWriter
from hoglab.storage.database.tables import ingestion_warning, project

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from hoglab.storage.database import Database

REQUEST_REFUSED = "capture_request_refused"
"""Type of the warning about a request of which nothing was taken."""
EVENT_REFUSED = "capture_event_refused"
"""Type of the warning about events that ``/i/v1/`` left out of a batch."""
WRITE_EVERY_S = 10.0
"""Interval at which refusals are written."""
MAX_REASONS = 20
"""Maximum number of warnings of a project in an hour; further reasons are counted together."""
MAX_WAITING = 2_000
"""Maximum number of reasons of all projects that wait to be written; more are not told."""
MAX_REASON_CHARS = 300
SEARCHED_BYTES = 64 * 1024
"""Size of the parts at both ends of a request that could not be read in which its token is looked for."""
MAX_TOKENS = 4
"""Number of texts in a request that are tried as its token."""
OTHER_REASONS = "other reasons"

_NAMESPACE = UUID("5d1d0b6e-3c0f-5b43-9a53-3f5c1f3c2c6a")
_TOKEN = searched(rb'"(?:api_key|token|\$token)"[ \t\r\n]{0,8}:[ \t\r\n]{0,8}"([!#-\[\]-~]{1,200})"')
_NOT_TOLD = frozenset({401, 408, 429})
_DIGITS = str.maketrans("123456789", "000000000")


def is_told(status: int) -> bool:
    """Return whether owners are told of a refusal: the client is at fault, and it is not one that comes again."""
    return 400 <= status < 500 and status not in _NOT_TOLD


def tokens_in(text: bytes) -> tuple[str, ...]:
    """Return what may be the token of a request that is no valid JSON, or not what the protocol asks for."""
    parts = [text] if len(text) <= 2 * SEARCHED_BYTES else [text[:SEARCHED_BYTES], text[-SEARCHED_BYTES:]]
    matches = (match[1].decode("ascii") for part in parts for match in _TOKEN.finditer(part))
    return tuple(dict.fromkeys(islice(matches, MAX_TOKENS)))


class RefusalKey(NamedTuple):
    """Refusals that are told together; ``reason`` is without the digits in it, such as places in a text."""

    project_id: int
    type: str
    path: str
    reason: str


@dataclass(slots=True)
class _Count:
    details: dict[str, Any]
    number: int = 0


class RefusedRequests(CollectingWriter):
    """Refusals, collected in memory and written now and then.

    Project tokens are public, and texts of strangers are in reasons: of each project only so many wait as an hour has
    warnings for, so that nobody crowds out others or keeps the database busy.
    """

    NAME = "refused-requests"
    NOT_WRITTEN = "refused_requests_not_written"

    def __init__(self, database: Database, now: Callable[[], datetime] = utc_now) -> None:
        super().__init__(WRITE_EVERY_S)
        self._database = database
        self._now = now
        self._lock = threading.Lock()
        self._waiting: dict[RefusalKey, _Count] = {}
        self._reasons: Counter[tuple[int, str]] = Counter()
        """Numbers of reasons that wait, by project and type."""

    def note(
        self, project_id: int, path: str, reason: str, *, status: int | None = None, events: int = 0
    ) -> None:
        """Remember a refusal: of a request, or of a number of events of it. Cheap, from any thread."""
        kind, counted = (EVENT_REFUSED, "events") if events else (REQUEST_REFUSED, "requests")
        details: dict[str, Any] = {"path": path, "reason": reason[:MAX_REASON_CHARS], counted: 0}
        if status is not None:
            details["status"] = status
        key = RefusalKey(project_id, kind, path, details["reason"].translate(_DIGITS))
        with self._lock:
            if key not in self._waiting and self._reasons[key[:2]] >= MAX_REASONS:
                key, details = _others(key, counted)
            if key not in self._waiting:
                if len(self._waiting) >= MAX_WAITING:
                    return
                self._waiting[key] = _Count(details)
                self._reasons[key[:2]] += 1
            self._waiting[key].number += events or 1

    def write(self) -> int:
        """Write what was collected, and return the number of reasons."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
            self._reasons.clear()
        if not waiting:
            return 0
        at = self._now()
        with self._database.write() as tx:
            ids = {key.project_id for key in waiting}
            known = set(tx.connection.scalars(sa.select(project.c.id).where(project.c.id.in_(ids))))
            for key, count in waiting.items():
                if key.project_id in known:
                    _save(tx.connection, key, count, at)
        return len(waiting)


def _save(connection: Connection, key: RefusalKey, count: _Count, at: datetime) -> None:
    """Add to the warning of this hour, or begin it."""
    column = ingestion_warning.c
    hour = at.replace(minute=0, second=0, microsecond=0)
    mine = (column.project_id == key.project_id) & (column.type == key.type)
    name = _name(key, hour)
    asked = sa.select(column.id, column.details).where(mine, column.event_uuid == name)
    row = connection.execute(asked).first()
    if row is None and key.reason != OTHER_REASONS:
        since = sa.select(sa.func.count()).where(mine, column.timestamp >= hour)
        if (connection.scalar(since) or 0) >= MAX_REASONS:
            others, details = _others(key, _counted(count.details))
            _save(connection, others, _Count(details, count.number), at)
            return
    details = _with_more(count.details if row is None else row.details, count.number)
    if row is None:
        values = {"project_id": key.project_id, "type": key.type, "event_uuid": name, "timestamp": at}
        connection.execute(sa.insert(ingestion_warning), {**values, "details": details})
    else:
        connection.execute(sa.update(ingestion_warning).where(column.id == row.id).values(details=details))


def _others(key: RefusalKey, counted: str) -> tuple[RefusalKey, dict[str, Any]]:
    """Return the key, and the details to begin with, under which further reasons of a project are counted."""
    details = {"path": "", "reason": OTHER_REASONS, counted: 0}
    return key._replace(path="", reason=OTHER_REASONS), details


def _counted(details: Mapping[str, Any]) -> str:
    return "events" if "events" in details else "requests"


def _with_more(details: Mapping[str, Any], number: int) -> dict[str, Any]:
    counted = _counted(details)
    return {**details, counted: details[counted] + number}


def _name(key: RefusalKey, hour: datetime) -> str:
    """Return the id under which a warning is stored: such warnings are about no event of their own."""
    return str(uuid5(_NAMESPACE, f"{hour.isoformat()}/{key.path}/{key.reason}"))
