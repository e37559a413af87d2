"""Keeping the bucketing of an anonymous visitor who becomes known (spec: sdk-wire 3.12)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import sqlalchemy as sa

from hoglab.flags.matching.lookups import StoredHashKeys, hash_keys_of, merge_hash_keys, within
from hoglab.http.fields.dates import utc_now
from hoglab.storage.database.locks import tried_again
from hoglab.storage.database.tables import flag_hash_key_override, flag_log_in
from hoglab.storage.database.upsert import upsert

if TYPE_CHECKING:
    from hoglab.storage.database import Database

_log_in = flag_log_in.c

LOG_INS_KEPT_FOR_S = 600.0
"""Time for which a log-in counts that is not ingested yet."""
MAX_LOG_INS = 20_000
"""Maximum number of log-ins that are remembered; the oldest ones are forgotten."""
MAX_SHARED_LOG_INS = 20_000
"""Maximum number of log-ins of a project that are stored for other processes; the oldest ones are forgotten.

Everybody who knows a project's public token can name log-ins. Those who are forgotten get the flags of their new id.
"""
SHARED_LOG_INS_COUNTED_EVERY = 500
"""Number of log-ins that a process stores of a project before it looks how many there are."""
MAX_ID_LENGTH = 400
"""Maximum length of ids that are remembered; longer ones name no person."""


class RecentLogIns:
    """Anonymous ids of people who logged in a moment ago, by project and distinct id; for the event loop's thread.

    The request for flags at a log-in names the anonymous id, the next one does not, and the person to whom the
    bucketing id belongs may not be ingested when either of them arrives. The first log-in counts.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._known: dict[tuple[int, str], tuple[float, str]] = {}

    def known(self, project_id: int, distinct_id: str) -> str | None:
        """Return the anonymous id of a recent log-in; None without one."""
        key = project_id, distinct_id
        kept = self._known.get(key)
        if kept is not None and kept[0] < self._now():
            del self._known[key]
            return None
        return None if kept is None else kept[1]

    def add(self, project_id: int, distinct_id: str, anonymous_id: str) -> bool:
        """Remember a log-in, unless one is known already. Return whether it is new."""
        names_nobody = max(len(anonymous_id), len(distinct_id)) > MAX_ID_LENGTH
        if anonymous_id == distinct_id or names_nobody or self.known(project_id, distinct_id) is not None:
            return False
        if len(self._known) >= MAX_LOG_INS:
            del self._known[next(iter(self._known))]
        self._known[project_id, distinct_id] = (self._now() + LOG_INS_KEPT_FOR_S, anonymous_id)
        return True


class SharedLogIns:
    """Recent log-ins that all processes on a database know."""

    def __init__(self, database: Database, now: Callable[[], datetime] = utc_now) -> None:
        self._database = database
        self._now = now
        self._stored: Counter[int] = Counter()

    def known(self, project_id: int, distinct_id: str) -> str | None:
        """Return the anonymous id of a recent log-in; None without one."""
        with self._database.read(durable=False) as connection:
            anonymous_id: str | None = connection.scalar(
                sa.select(_log_in.anonymous_id).where(
                    _log_in.project_id == project_id,
                    _log_in.distinct_id == distinct_id,
                    _log_in.expires_at > self._now(),
                )
            )
        return anonymous_id

    @tried_again
    def add(self, project_id: int, distinct_id: str, anonymous_id: str) -> None:
        """Remember a log-in, unless one is known already. Returns when other processes see it."""
        now = self._now()
        row = {
            "project_id": project_id,
            "distinct_id": distinct_id,
            "anonymous_id": anonymous_id,
            "expires_at": now + timedelta(seconds=LOG_INS_KEPT_FOR_S),
        }
        with self._database.write() as tx:
            upsert(
                tx.connection,
                flag_log_in,
                row,
                update=("anonymous_id", "expires_at"),
                where=_log_in.expires_at <= now,
            )
            if self._stored[project_id] % SHARED_LOG_INS_COUNTED_EVERY == 0:
                _forget_oldest(tx.connection, project_id, MAX_SHARED_LOG_INS - SHARED_LOG_INS_COUNTED_EVERY)
        self._stored[project_id] += 1

    def forget_old(self) -> None:
        """Delete log-ins that do not count any more."""
        with self._database.write() as tx:
            tx.execute(sa.delete(flag_log_in).where(_log_in.expires_at <= self._now()))


def _forget_oldest(connection: sa.Connection, project_id: int, kept: int) -> None:
    """Delete the log-ins of a project but the newest ones."""
    of_project = _log_in.project_id == project_id
    newest_first = sa.select(_log_in.expires_at).where(of_project).order_by(_log_in.expires_at.desc())
    newest_gone = connection.scalar(newest_first.offset(kept).limit(1))
    if newest_gone is not None:
        connection.execute(sa.delete(flag_log_in).where(of_project, _log_in.expires_at <= newest_gone))


def missing(stored: Sequence[StoredHashKeys], flag_keys: Collection[str]) -> list[tuple[int, str]]:
    """Return pairs of person and flag without a stored bucketing id."""
    pairs = {(person.person_id, key) for person in stored for key in flag_keys if key not in person.by_flag}
    return sorted(pairs)


@tried_again
def remember(
    database: Database,
    project_id: int,
    distinct_ids: Collection[str],
    flag_keys: Collection[str],
    hash_key: str,
) -> dict[str, str]:
    """Give the persons behind the distinct ids a bucketing id for the flags for which they have none.

    Persons keep the ids that they have. Returns the bucketing ids that are stored now, by flag. This writes, so it
    may have to wait for other writers.
    """
    with database.write() as tx:
        run = within(tx.connection)
        # Looked at inside the transaction: persons may have been merged, or an identical request been faster.
        pairs = missing(hash_keys_of(run, project_id, distinct_ids), flag_keys)
        if pairs:
            rows = [
                {
                    "project_id": project_id,
                    "person_id": person_id,
                    "feature_flag_key": flag_key,
                    "hash_key": hash_key,
                }
                for person_id, flag_key in pairs
            ]
            tx.execute(sa.insert(flag_hash_key_override), rows)
        return merge_hash_keys(hash_keys_of(run, project_id, distinct_ids))
