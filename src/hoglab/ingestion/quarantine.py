"""The quarantine: log records that cannot be processed, kept for people to look at, to replay or to discard.

Nothing leaves it but by somebody's decision. When it is full, ingestion waits for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson
from prometheus_client import Gauge

from hoglab.capture.records import RecordError, decode_record, read_header
from hoglab.http.fields.dates import utc_now
from hoglab.storage.event_log.quarantine import QuarantinedRecord

if TYPE_CHECKING:
    from hoglab.storage.event_log import SequenceNumber
    from hoglab.storage.event_log.quarantine import QuarantineState, QuarantineStore

MAX_BYTES = 256 * 1024 * 1024
"""Maximum size of all quarantined records; one that does not fit makes ingestion wait."""
MAX_REASON_CHARS = 2_000
REPLAYED_AT_ONCE = 100

_RECORDS = Gauge("hoglab_ingestion_quarantine_records", "Log records that are in quarantine.")
_BYTES = Gauge("hoglab_ingestion_quarantine_bytes", "Size of the log records that are in quarantine.")


class QuarantineFullError(Exception):
    """There is no room for one more record. The text says what to do."""


class Quarantine:
    """Records are named by their offsets; ``project_id`` limits what is looked at."""

    def __init__(
        self,
        store: QuarantineStore,
        *,
        max_bytes: int = MAX_BYTES,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._store = store
        self.max_bytes = max_bytes
        self._now = now

    # --- ingestion's side

    def put(self, number: SequenceNumber, payload: bytes, reason: str) -> None:
        """Keep a record, durably, under its number; putting one again replaces it. Raises `QuarantineFullError`."""
        quarantined = QuarantinedRecord(
            number,
            _project_of(payload),
            reason[:MAX_REASON_CHARS],
            len(payload),
            self._now(),
            is_replaying=False,
        )
        full = self._store.put(quarantined, payload, self.max_bytes)
        if full is not None:
            raise QuarantineFullError(
                f"the quarantine holds {full.records} records ({full.bytes} bytes) and takes no more: replay or "
                "discard them with `hoglab ingestion quarantine`, or raise HOGLAB_QUARANTINE_MAX_BYTES"
            )
        self.state()

    def state(self) -> QuarantineState:
        """Return number and size of the records now; metrics follow."""
        state = self._store.state()
        _RECORDS.set(state.records)
        _BYTES.set(state.bytes)
        return state

    def replaying(self) -> list[tuple[SequenceNumber, bytes]]:
        """Return offsets and payloads of some of the records that are to go back to the log, in order."""
        return self._store.replaying(REPLAYED_AT_ONCE)

    # --- the operator's side

    def records(
        self, project_id: int | None = None, *, limit: int | None = None, offset: int = 0
    ) -> list[QuarantinedRecord]:
        """Return a page of records, oldest first."""
        return self._store.page(project_id, limit, offset)

    def count(self, project_id: int | None = None) -> int:
        return self._store.count(project_id)

    def get(self, offset: int, project_id: int | None = None) -> tuple[QuarantinedRecord, bytes] | None:
        """Return a record with its payload."""
        return self._store.get(offset, project_id)

    def replay(self, offsets: Sequence[int] | None = None, project_id: int | None = None) -> int:
        """Let the server, or its next start, ingest records (None: all) again, and return how many.

        They leave the quarantine when they are in the event log again, and come back when they fail again. Events
        that were stored meanwhile are not stored twice.
        """
        return self._store.replay(offsets, project_id)

    def discard(self, offsets: Sequence[int] | None = None, project_id: int | None = None) -> int:
        """Delete records (None: all) for good; how many."""
        discarded = self._store.discard(offsets, project_id)
        self.state()
        return discarded


def events_in(payload: bytes) -> list[dict[str, Any]] | None:
    """Return the events of a record as they were sent; None when they cannot be read."""
    try:
        events = decode_record(payload).envelope.events
        return [
            {
                "uuid": event.uuid,
                "event": event.event,
                "distinct_id": event.distinct_id,
                "timestamp": event.timestamp,
                "properties": orjson.loads(bytes(event.properties) or b"{}"),
            }
            for event in events
        ]
    except (RecordError, ValueError):
        return None


def _project_of(payload: bytes) -> int | None:
    try:
        return read_header(payload)[0].project_id
    except RecordError:
        return None
