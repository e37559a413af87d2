"""Importing files of events: through the capture endpoint of a running server, and only there.

So imported events meet the same checks, the same log and the same ingestion as those of SDKs, the server need not
stop, and it may be on another machine. They are marked as historical: stored, but no hog function runs on them.
What makes a repetition harmless are the uuids of events: a row without one gets one from the file's content and the
row's position.
"""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from hoglab.capture.envelope import read_envelope
from hoglab.capture.refusal import Refusal
from hoglab.capture.service import CaptureLimits
from hoglab.transfer.journal import ImportProgress
from hoglab.transfer.rows import RowError, event_of, row_uuid
from hoglab.transfer.sending import BatchRefusedError, SendError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hoglab.transfer.files import FileRow, RowFile
    from hoglab.transfer.journal import Journal
    from hoglab.transfer.sending import Sender

BATCH_EVENTS = 2_000
BATCH_BYTES = 4 * 1024 * 1024
MAX_EVENT_BYTES = CaptureLimits().event
"""A larger event would be dropped by ingestion, with a warning that nobody reads during an import."""


class Rejected(NamedTuple):
    """A row that is not imported."""

    line: int
    reason: str
    row: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """Result for the rows of a file; ``before`` were dealt with by earlier runs."""

    before: int
    taken: int
    refused: int


class _Pending(NamedTuple):
    line: int
    row: dict[str, Any]
    event: bytes


def import_file(
    file: RowFile,
    sender: Sender,
    journal: Journal,
    *,
    target: str,
    on_rejected: Callable[[Rejected], None],
    on_progress: Callable[[], None] = lambda: None,
) -> ImportOutcome:
    """Import what is left of a file. ``target`` names server and project in the journal.

    A refused row is handed to ``on_rejected`` before the journal moves behind it: at least once, when a run is
    cut off. Raises `FileError` and `SendError`; everything before that is taken and in the journal.
    """
    file_hash = file.sha256()
    start = journal.progress(file_hash, target)
    done = start
    for position, batch, rejected in _batches(file, file_hash, start.rows):
        rejected += _deliver(sender, batch)
        for row in sorted(rejected, key=lambda rejected: rejected.line):
            on_rejected(row)
        done = ImportProgress(position, done.refused + len(rejected))
        journal.record(file_hash, target, done)
        on_progress()
    refused = done.refused - start.refused
    return ImportOutcome(start.rows, done.rows - start.rows - refused, refused)


def _batches(
    file: RowFile, file_hash: str, skip: int
) -> Iterator[tuple[int, list[_Pending], list[Rejected]]]:
    """Yield events to send together, the rows that are none, and the position behind both."""
    batch: list[_Pending] = []
    rejected: list[Rejected] = []
    size = position = 0
    for position, row in enumerate(file.rows(), 1):
        if position <= skip:
            continue
        event = _encoded(row, file_hash, position)
        if isinstance(event, Rejected):
            rejected.append(event)
        else:
            batch.append(event)
            size += len(event.event)
        if len(batch) + len(rejected) >= BATCH_EVENTS or size >= BATCH_BYTES:
            yield position, batch, rejected
            batch, rejected, size = [], [], 0
    if batch or rejected:
        yield position, batch, rejected


def _encoded(row: FileRow, file_hash: str, position: int) -> _Pending | Rejected:
    if row.value is None:
        return Rejected(row.line, row.problem, None)
    try:
        event = orjson.dumps(event_of(row.value, row_uuid(file_hash, position)))
    except RowError as error:
        return Rejected(row.line, str(error), row.value)
    except orjson.JSONEncodeError as error:  # text that is not UTF-8, for one
        return Rejected(row.line, f"the row cannot be written as JSON: {error}", None)
    if len(event) > MAX_EVENT_BYTES:
        return Rejected(row.line, f"the event is larger than {MAX_EVENT_BYTES} bytes", None)
    return _Pending(row.line, row.value, event)


def _deliver(sender: Sender, batch: list[_Pending]) -> list[Rejected]:
    """Send a batch without the events that are refused; those.

    One bad event refuses a whole request, so each is judged by the endpoint's own rules beforehand. What the
    server refuses all the same is looked for in halves.
    """
    if not batch:
        return []
    body = sender.body([pending.event for pending in batch])
    try:
        read_envelope(body)
        sender.send(body)
    except (Refusal, BatchRefusedError) as error:
        if isinstance(error, Refusal) and error.status == http.client.UNAUTHORIZED:
            raise SendError(error.reason) from None
        reason = error.reason if isinstance(error, Refusal) else str(error)
        if len(batch) == 1:
            return [Rejected(batch[0].line, reason, batch[0].row)]
        middle = len(batch) // 2
        return _deliver(sender, batch[:middle]) + _deliver(sender, batch[middle:])
    return []
