"""Durability of commits: group commit of the write-ahead log, and the list of what need not wait for it.

SQLite itself would sync the log inside of each commit, with the file locked. Here a commit only appends to the log, and
a thread that waits for the disk syncs the log for all who have committed by then (``fdatasync``), while others go on
writing. The log is read back in the order of its commits, so one that is on disk has all earlier ones with it.
"""

from __future__ import annotations

import enum
import os
import threading
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import structlog

from hoglab.storage.database.errors import DatabaseNotDurableError

if TYPE_CHECKING:
    from pathlib import Path

_log = structlog.get_logger(__name__)


class Rebuildable(enum.Enum):
    """Kinds of data that may be lost in a power failure, since they can be rebuilt; all other data waits for the disk.

    The value says what makes it again, or what its loss costs.
    """

    KEY_USAGE = "when a key or a session was last used: its next use says so again"
    FLAG_CALLS = "when a flag was last called: its next call says so again"
    COHORT_CALCULATION = "members of dynamic cohorts: an interrupted calculation begins again"
    RESULTS = "computed results: missing ones are computed again from events"
    RECALCULATION_STATUS = "how far a requested computation has come: it begins again"
    JOB_LEASES = "which process is at work on what: after a power cut none is"
    QUERY_STATUS = "queries that are answered later, and their answers: clients send them again"
    BACKFILL_PROGRESS = (
        "how far a backfill has come: it goes on from before, and what is queued is not queued twice"
    )
    HANDED_ON = "internal events that functions were told of: they are handed on again under the same ids"
    FUNCTION_HEALTH = "how much a function's runs have cost lately: its next runs say so again"
    UNANSWERED_REQUESTS = (
        "reserved idempotency keys: the change that a request makes takes its key to disk with it"
    )
    PERSON_SEARCH = "the index for searching persons: what is missing is put in again"
    EXPIRED = "rows deleted for their age: they are deleted again"
    LOG_POSITIONS = "how far the event log was consumed and deleted: consumers recognise what they have done"
    DELIVERY_PROGRESS = "claims, outcomes and logs of runs, and dispatching: a run is delivered at least once"


class CommitSync:
    """The commits of one database file that are to be on disk, and those that are. Used from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wal = path.with_name(f"{path.name}-wal")
        self._known_wal: int | None = None
        self._changed = threading.Condition()
        self._begun = 0
        self._committed = 0
        self._synced = 0
        self._syncing = False
        self._failure: OSError | None = None

    def begin(self) -> int:
        """Return number the commit that is about to be made.

        The caller holds the file's write lock until `committed`.
        """
        self._check()
        with self._changed:
            self._begun += 1
            return self._begun

    def committed(self, number: int) -> None:
        """Note that the commit was made, or rolled back."""
        with self._changed:
            self._committed = number
            self._changed.notify_all()

    def wait(self, number: int) -> None:
        """Return when a commit is on disk.

        Raises `DatabaseNotDurableError` when the disk fails; then nothing is durable any more until a restart, since
        the system may have dropped what it could not write.
        """
        self._settle(number)
        if self._synced < number:
            self._check()

    def settle(self) -> None:
        """Return when all that anybody can see is on disk, or never will be."""
        self._settle(self._begun)

    def _settle(self, number: int) -> None:
        while self._synced < number:
            with self._changed:
                if self._synced >= number or self._failure is not None:
                    return
                if self._syncing or self._committed <= self._synced:
                    self._changed.wait()
                    continue
                self._syncing = True
                latest = self._committed
            self._lead(latest)

    def check(self) -> None:
        """Raise `DatabaseNotDurableError` if a sync has failed, for health checks."""
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            reason = self._failure.strerror or self._failure
            raise DatabaseNotDurableError(
                f"{self._path} could not be written to disk ({reason}): check the disk, then restart the server"
            ) from self._failure

    def _lead(self, latest: int) -> None:
        """Sync for everybody who has committed."""
        failure = None
        try:
            self._sync()
        except OSError as error:
            failure = error
            _log.critical("commits_not_on_disk", path=str(self._path), reason=str(error))
        with self._changed:
            self._syncing = False
            if failure is None:
                self._synced = latest
            else:
                self._failure = failure
            self._changed.notify_all()

    def _sync(self) -> None:
        try:
            wal = os.open(self._wal, os.O_RDWR)
        except FileNotFoundError:
            return  # the last connection was closed, which has worked everything into the file
        try:
            os.fdatasync(wal)
            inode = os.fstat(wal).st_ino
        finally:
            os.close(wal)
        if inode != self._known_wal:  # its name must last, too
            folder = os.open(self._wal.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            self._known_wal = inode


_syncs: WeakValueDictionary[str, CommitSync] = WeakValueDictionary()
_syncs_mutex = threading.Lock()


def commit_sync(path: Path) -> CommitSync:
    """Return the sync of a database file, which is one for all that open the file in this process."""
    path = path.resolve()
    with _syncs_mutex:
        sync = _syncs.get(str(path))
        if sync is None:
            sync = _syncs[str(path)] = CommitSync(path)
        return sync
