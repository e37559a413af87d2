"""The last evaluation of each feature flag for somebody, from the events that SDKs send about it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

import sqlalchemy as sa
from sqlalchemy import bindparam

from hoglab.flags.validation import MAX_KEY_LENGTH
from hoglab.storage.database import Rebuildable
from hoglab.storage.database.tables import feature_flag

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from hoglab.storage.database import Database

FLAG_CALLED = "$feature_flag_called"
WRITE_EVERY = timedelta(minutes=1)
"""Precision of ``last_called_at``: a flag is written at most once in so much time."""
MAX_REMEMBERED = 10_000
"""Flags whose last write is remembered; with more, some are written more often."""

_LATER = (
    sa.update(feature_flag)
    .where(
        feature_flag.c.project_id == bindparam("of_project"),
        feature_flag.c.key == bindparam("of_key"),
        sa.or_(feature_flag.c.last_called_at.is_(None), feature_flag.c.last_called_at < bindparam("at")),
    )
    .values(last_called_at=bindparam("at"))
)


class CallEvent(Protocol):
    """Event as far as calls of flags need it."""

    @property
    def project_id(self) -> int: ...

    @property
    def event(self) -> str: ...

    @property
    def timestamp(self) -> datetime: ...

    @property
    def captured_at(self) -> datetime: ...

    @property
    def properties(self) -> Mapping[str, Any]: ...


class FlagCalls:
    """Writes ``last_called_at`` of flags. Used by the ingestion thread alone."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._written: dict[tuple[int, str], datetime] = {}

    def note(self, events: Iterable[CallEvent]) -> None:
        """Take in a batch: one statement for the flags that are due, none for most batches."""
        latest: dict[tuple[int, str], datetime] = {}
        for event in events:
            if event.event != FLAG_CALLED:
                continue
            key = event.properties.get("$feature_flag")
            if isinstance(key, str) and len(key) <= MAX_KEY_LENGTH:  # no flag has a longer one
                name = (event.project_id, key)
                at = min(event.timestamp, event.captured_at)
                latest[name] = max(at, latest.get(name, at))
        due = {name: at for name, at in latest.items() if self._is_due(name, at)}
        if not due:
            return
        with self._database.write(rebuildable=Rebuildable.FLAG_CALLS) as tx:
            tx.execute(
                _LATER,
                [{"of_project": project, "of_key": key, "at": at} for (project, key), at in due.items()],
            )
        if len(self._written) + len(due) > MAX_REMEMBERED:
            self._written.clear()
        self._written.update(due)

    def _is_due(self, name: tuple[int, str], at: datetime) -> bool:
        written = self._written.get(name)
        return written is None or at - written >= WRITE_EVERY
