"""Log records that were put aside because they cannot be processed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from hoglab.storage.event_log import SequenceNumber


@dataclass(frozen=True, slots=True)
class QuarantinedRecord:
    """A record that was put aside. ``offset`` is its number in the event log, and its name from then on.

    ``project_id`` is None when that could not be read; ``is_replaying`` when it is about to go back to the log.
    """

    offset: SequenceNumber
    project_id: int | None
    reason: str
    size: int
    quarantined_at: datetime
    is_replaying: bool


@dataclass(frozen=True, slots=True)
class QuarantineState:
    """Size of the quarantine."""

    records: int
    bytes: int


class QuarantineStore(Protocol):
    """Store of quarantined records. Blocking methods, called from any thread; they raise `DatabaseError`.

    Where a project is given, records of others, and those of no known project, are not looked at.
    """

    def put(self, record: QuarantinedRecord, payload: bytes, max_bytes: int) -> QuarantineState | None:
        """Keep a record, durably, in the place of what has its offset.

        Where it does not fit into ``max_bytes`` with what else there is, nothing changes, and what there is is
        returned. One alone may be larger, or its only way out would be a setting.
        """
        ...

    def state(self) -> QuarantineState:
        """Return number and size of all records."""
        ...

    def replaying(self, limit: int) -> list[tuple[SequenceNumber, bytes]]:
        """Return offsets and payloads of some of the records that are to go back to the log, in order."""
        ...

    def page(self, project_id: int | None, limit: int | None, offset: int) -> list[QuarantinedRecord]:
        """Return some of the records, oldest first."""
        ...

    def count(self, project_id: int | None) -> int:
        """Return the number of records."""
        ...

    def get(self, offset: int, project_id: int | None) -> tuple[QuarantinedRecord, bytes] | None:
        """Return a record with its payload."""
        ...

    def replay(self, offsets: Sequence[int] | None, project_id: int | None) -> int:
        """Let records (None: all) go back to the log, and return how many."""
        ...

    def discard(self, offsets: Sequence[int] | None, project_id: int | None) -> int:
        """Delete records (None: all) for good, and return how many."""
        ...
