"""Notes when keys and sessions were last used, off the request path."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hoglab.accounts import store
from hoglab.http.fields.dates import utc_now
from hoglab.storage.collecting import CollectingWriter
from hoglab.storage.database import Rebuildable

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from hoglab.storage.database import Database

WRITE_EVERY_S = 60.0
"""Interval at which the times of last use are written."""


class KeyUsage(CollectingWriter):
    """Last use of each key, collected in memory and written now and then."""

    NAME = "key-usage"
    NOT_WRITTEN = "key_usage_not_written"

    def __init__(
        self, database: Database, now: Callable[[], datetime] = utc_now, write_every_s: float = WRITE_EVERY_S
    ) -> None:
        super().__init__(write_every_s)
        self._database = database
        self._now = now
        self._pending: dict[str, datetime] = {}

    def note(self, key_id: str) -> None:
        """Remember that a key was used just now. Cheap, from any thread."""
        self._pending[key_id] = self._now()

    def write(self) -> int:
        """Write the collected times. Return the number of keys."""
        # Swapping the dictionary is atomic; a note that races with it lands in either of the two.
        pending, self._pending = self._pending, {}
        if not pending:
            return 0
        with self._database.write(rebuildable=Rebuildable.KEY_USAGE) as tx:
            for key_id, moment in pending.items():
                self._store(tx.connection, key_id, moment)
        return len(pending)

    def _store(self, connection: Connection, key_id: str, moment: datetime) -> None:
        store.update_key(connection, key_id, {"last_used_at": moment})


class SessionUsage(KeyUsage):
    """Last use of each session, collected in memory and written now and then."""

    NAME = "session-usage"

    def _store(self, connection: Connection, key_id: str, moment: datetime) -> None:
        store.touch_session(connection, key_id, moment)
