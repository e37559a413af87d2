"""Files that know each other: what tells at a start that one of a directory is missing, foreign, older or cut off.

``hoglab.db``, ``queue.db`` and ``events.duckdb`` hold the same id of the installation, its generation (one more after
each restore, and move of events) and the number of its starts. Beside that each knows how far another one had come:
both stores know offsets of the event log, and the queue knows how much was changed in the metadata. What does not fit
is never taken silently: it is told with what it means and what to do (`FilesDisagreeError`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

import sqlalchemy as sa
import structlog

from hoglab.storage.database.changes import total_changes
from hoglab.storage.database.tables import (
    ingestion_progress,
    installation,
    queue_installation,
)
from hoglab.storage.directory import DirectoryError
from hoglab.storage.event_log import SequenceNumber

if TYPE_CHECKING:
    from pathlib import Path

    from hoglab.storage.database import Database
    from hoglab.storage.directory import DataDirectory
    from hoglab.storage.event_log import LogStats, Offset
    from hoglab.storage.event_store import EventWriter

PEOPLE_STAGE = "people"
"""The stage of ingestion that is finished before events are stored."""

_log = structlog.get_logger(__name__)


class FilesDisagreeError(DirectoryError):
    """The files of a directory are not of one piece. ``findings``: what is wrong and what it means, a line each."""

    def __init__(self, path: Path, findings: list[str], *, acceptable: bool) -> None:
        self.findings = findings
        way = "put the right files back, or restore a backup (`hoglab restore`)"
        if acceptable:
            way += "; `hoglab serve --accept-loss` goes on without what is lost"
        super().__init__(f"the files of {path} do not fit together: {' '.join(findings)} What to do: {way}")


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a file. ``starts``: how often a server began to work with it."""

    installation_id: str
    generation: int
    starts: int

    @classmethod
    def new(cls) -> Identity:
        return cls(str(uuid4()), 1, 0)


@dataclass(frozen=True, slots=True)
class ExistingFiles:
    """Files that were present before any was opened, which creates them."""

    metadata: bool
    queue: bool
    events: bool
    secret_keys: bool

    @classmethod
    def in_directory(cls, directory: DataDirectory) -> ExistingFiles:
        return cls(
            directory.metadata_path.exists(),
            directory.queue_path.exists(),
            directory.events_path.exists(),
            directory.secret_keys_path.exists(),
        )

    @classmethod
    def on_server(cls, directory: DataDirectory, *, has_events: bool = False) -> ExistingFiles:
        """Return the files of a directory beside a database server, which has the metadata and the queue.

        ``has_events``: so it is with events, too.
        """
        events = has_events or directory.events_path.exists()
        return cls(True, True, events, directory.secret_keys_path.exists())

    @property
    def nothing(self) -> bool:
        """Whether this is a new directory."""
        return not (self.metadata or self.queue or self.events)


def check_metadata_exists(
    directory: DataDirectory, existing: ExistingFiles, *, accept_loss: bool
) -> ExistingFiles:
    """Refuse to start without metadata beside older files; called before anything is opened.

    With ``accept_loss`` these are set aside. Raises `FilesDisagreeError`.
    """
    if existing.metadata or existing.nothing:
        return existing
    others = [path for path in (directory.queue_path, directory.events_path) if path.exists()]
    names = " and ".join(path.name for path in others)
    if not accept_loss:
        text = (
            f"hoglab.db is missing: accounts, flags, experiments, functions and persons are gone, and {names} would "
            "be shown in the next project that is made. (--accept-loss sets these files aside and begins without them.)"
        )
        raise FilesDisagreeError(directory.path, [text], acceptable=True)
    aside = directory.set_aside([*others, directory.known_keys_path])
    _log.warning("files_set_aside", files=names, folder=str(aside))
    return ExistingFiles(metadata=False, queue=False, events=False, secret_keys=existing.secret_keys)


class KnownLog(Protocol):
    """Event log as far as its identity is checked."""

    def last_offset(self) -> Offset: ...

    def stats(self) -> LogStats: ...


class KnownStore(Protocol):
    """Event store as far as its identity is checked."""

    def position(self) -> SequenceNumber: ...

    def identity(self) -> tuple[str, int, int] | None: ...


class Installation:
    """The identities in the opened files of a directory."""

    def __init__(
        self,
        directory: DataDirectory,
        existing: ExistingFiles,
        database: Database,
        queue: Database,
        log: KnownLog,
        store: KnownStore,
    ) -> None:
        self._directory = directory
        self._existing = existing
        self._database = database
        self._queue = queue
        self._log = log
        self._store = store

    # --- reading

    def identities(self) -> dict[str, Identity | None]:
        """Return the identities of the files by their names; None for a file that has none."""
        return {
            "hoglab.db": self._in(self._database, installation),
            "queue.db": self._in(self._queue, queue_installation),
            "events.duckdb": self._in_store(),
        }

    def _in(self, database: Database, table: sa.Table) -> Identity | None:
        query = sa.select(table.c.installation_id, table.c.generation, table.c.starts)
        with database.read() as connection:
            row = connection.execute(query).first()
        return None if row is None else Identity(*row)

    def _in_store(self) -> Identity | None:
        row = self._store.identity()
        return None if row is None else Identity(*row)

    # --- checking

    def findings(self) -> list[str]:
        """Return contradictions between files.

        A text may end the start of a server, or be a line of ``hoglab check``.
        """
        contradictions = self._missing() or self._strangers()
        return contradictions or [*self._older(), *self._behind()]

    def _missing(self) -> list[str]:
        if self._existing.nothing:
            return []
        missing = []
        if not self._existing.queue:
            missing.append(
                "queue.db is missing: events that were accepted and not stored yet, deliveries that wait, and the "
                "logs and metrics of functions are lost."
            )
        if not self._existing.events and (text := self._unstored()):
            missing.append(f"events.duckdb is missing: {text}")
        return missing

    def _strangers(self) -> list[str]:
        known = {name: identity for name, identity in self.identities().items() if identity is not None}
        ids = {(identity.installation_id, identity.generation) for identity in known.values()}
        if len(ids) < 2:
            return []
        of = "; ".join(
            f"{name}: {identity.installation_id[:8]}, generation {identity.generation}"
            for name, identity in known.items()
        )
        if len({identity.installation_id for identity in known.values()}) > 1:
            return [f"They belong to different installations ({of}), so that one was put there by mistake."]
        return [
            f"They are of different generations ({of}): some are from before a restore, or before the events moved."
        ]

    def _older(self) -> list[str]:
        """Return files that missed starts. One start is allowed for: it is counted in one file after the other.

        Of an event store that is lost as a whole `_missing` tells what the event log cannot give back.
        """
        known = self.identities()
        if not self._existing.events:
            del known["events.duckdb"]
        most = max((identity.starts for identity in known.values() if identity is not None), default=0)
        findings = []
        for name, file in known.items():
            if (0 if file is None else file.starts) < most - 1:
                findings.append(
                    f"{name} is older than the others: it knows {0 if file is None else file.starts} of {most} starts, "
                    "and lacks what was written since."
                )
        return findings

    def _behind(self) -> list[str]:
        """Return contradictions of positions and counts: one file knows of another what that does not know itself."""
        findings = []
        if self._known_identity() is None:
            return []  # made by an older version, which kept no such count
        # What is behind is read first: other processes may be ingesting, and changing things, meanwhile.
        stored, seen_changes = self._store.position(), self._seen_changes()
        applied, last = self.applied(), self._log.last_offset()
        if applied < stored:
            findings.append(
                f"hoglab.db is older than events.duckdb, or was cut off (persons are known up to record {applied} of "
                f"the event log, events up to {stored}): changes to flags, experiments, keys and persons are lost."
            )
        elif self._changes() < seen_changes:
            findings.append(
                "hoglab.db is older than queue.db, or its write-ahead log was cut off: the latest changes to flags, "
                "experiments, functions or keys are lost (a revoked key may work again)."
            )
        if last < max(applied, stored):
            findings.append(
                f"queue.db is older than the others, or was cut off (it ends at record {last} of the event log, "
                f"{max(applied, stored)} were stored): accepted events, and deliveries that waited, may be lost."
            )
        elif self._existing.events and (text := self._unstored()):
            findings.append(f"events.duckdb is older than hoglab.db: {text}")
        return findings

    def _unstored(self) -> str | None:
        """Return loss of events that were stored once, and are neither stored now nor in the log; None without any."""
        applied, stored = self.applied(), self._store.position()
        first = self._log.stats().first_offset or self._log.last_offset() + 1
        if first <= stored + 1 or applied <= stored:
            return None  # what is missing is ingested again
        return (
            f"the events of records {stored + 1} to {min(first - 1, applied)} of the event log are lost; later ones "
            "are ingested again."
        )

    def _known_identity(self) -> Identity | None:
        return self._in(self._database, installation)

    def applied(self) -> SequenceNumber:
        """Return the record of the event log up to which persons are known."""
        query = sa.select(sa.func.max(ingestion_progress.c.log_offset))
        with self._database.read() as connection:
            return SequenceNumber(connection.scalar(query) or 0)

    def _changes(self) -> int:
        return changes(self._database)

    def _seen_changes(self) -> int:
        with self._queue.read() as connection:
            return connection.scalar(sa.select(queue_installation.c.seen_changes)) or 0

    # --- beginning

    def check(self, *, accept_loss: bool) -> None:
        """Raise `FilesDisagreeError`. With ``accept_loss`` only for what cannot go together at all."""
        findings = self.findings()
        strangers = bool(self._strangers())
        if findings and (strangers or not accept_loss):
            raise FilesDisagreeError(self._directory.path, findings, acceptable=not strangers)
        for text in findings:
            _log.warning("loss_accepted", finding=text)

    def begin(self, store: EventWriter) -> Identity:
        """Count one start in all files. From then on they fit together, also after an accepted loss.

        ``store`` is the one that was checked.
        """
        known = [identity for identity in self.identities().values() if identity is not None]
        base = max(known, key=lambda identity: identity.starts) if known else Identity.new()
        identity = Identity(base.installation_id, base.generation, base.starts + 1)
        # The metadata come last: until then this start counts as one that may be missing.
        store.set_identity(identity.installation_id, identity.generation, identity.starts)
        write_identity(self._queue, queue_installation, identity, seen_changes=self._changes())
        self._align()
        write_identity(self._database, installation, identity)
        return identity

    def _align(self) -> None:
        """Move the progress of persons up to the stored events."""
        stored = self._store.position()
        if self.applied() < stored:
            with self._database.write() as tx:
                tx.execute(sa.delete(ingestion_progress).where(ingestion_progress.c.stage == PEOPLE_STAGE))
                tx.execute(sa.insert(ingestion_progress).values(stage=PEOPLE_STAGE, log_offset=stored))


def write_identity(database: Database, table: sa.Table, identity: Identity, **further: object) -> None:
    """Put an identity into a file, keeping the other columns of its row."""
    values = {
        "installation_id": identity.installation_id,
        "generation": identity.generation,
        "starts": identity.starts,
        **further,
    }
    with database.write() as tx:
        if not tx.execute(sa.update(table).values(**values)).rowcount:
            tx.execute(sa.insert(table).values(id=1, **values))


def changes(database: Database) -> int:
    """Return the number of changes of the metadata so far: grows with every change of a flag, key, function."""
    with database.read() as connection:
        return total_changes(connection)


class ChangeCounterMirror:
    """Lets the queue know how much was changed in the metadata, so that a later start notices what is lost of it."""

    def __init__(self, database: Database, queue: Database) -> None:
        self._database = database
        self._queue = queue
        self._written = -1

    def note(self) -> None:
        """Call it now and then."""
        seen = changes(self._database)
        if seen > self._written:
            behind = queue_installation.c.seen_changes < seen  # another process may have seen more
            with self._queue.write() as tx:
                tx.execute(sa.update(queue_installation).where(behind).values(seen_changes=seen))
            self._written = seen
