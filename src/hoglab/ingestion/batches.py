"""From records of the event log to batches of decoded events, made one ahead of who processes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import structlog

from hoglab.capture.records import RecordError, decode_record
from hoglab.ingestion.normalise import Event, events_of
from hoglab.storage.event_log import numbered

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from hoglab.people import IngestionWarning
    from hoglab.storage.event_log import LogRecord

_logger = structlog.get_logger(__name__)

T = TypeVar("T")


class Unreadable(NamedTuple):
    """A record that cannot be decoded, and why."""

    record: LogRecord
    reason: str


class Batch:
    """Decoded records that are processed together. ``json_bytes``: the size of their JSON text."""

    __slots__ = ("events", "json_bytes", "records", "warnings")

    def __init__(
        self,
        records: list[LogRecord],
        events: list[Event],
        warnings: list[IngestionWarning],
        json_bytes: int,
    ) -> None:
        self.records = records
        self.events = events
        self.warnings = warnings
        self.json_bytes = json_bytes

    def extend(self, other: Batch) -> None:
        self.records += other.records
        self.events += other.events
        self.warnings += other.warnings
        self.json_bytes += other.json_bytes


class BatchSize:
    """Maximum number of events in a batch.

    Fewer while their transformations are slow, so that they come to all of them within the time that they have for a
    batch, and that others do not wait long for it.
    """

    def __init__(self, most: int, *, first: int, least: int, wanted_s: float) -> None:
        """Begin with ``first`` events; ``wanted_s`` is the time that transformations of a batch should take."""
        self._most = most
        self._least = min(least, most)
        self._wanted_s = wanted_s
        self._events = min(first, most)

    def __call__(self) -> int:
        return self._events

    def note(self, events: int, seconds: float) -> None:
        """Take stock of a batch. What is quick grows slowly, for a small batch says little."""
        fitting = self._most if seconds <= 0 else int(min(self._most, events * self._wanted_s / seconds))
        self._events = max(self._least, min(fitting, 2 * self._events))


def batch_of(record: LogRecord, sequence_offset: int = 0) -> Batch:
    """Return a record alone, of a batch with this difference between numbers and offsets. Raises `RecordError`."""
    decoded = decode_record(record.payload)
    warnings: list[IngestionWarning] = []
    events = events_of(decoded, numbered(record.offset, sequence_offset), warnings)
    return Batch([record], events, warnings, decoded.json_bytes)


def batches_of(
    records: Sequence[LogRecord], *, max_events: Callable[[], int], max_json_bytes: int
) -> Iterator[Batch | Unreadable]:
    """Yield records in batches within both limits, unless one alone is larger, and between them what is unreadable.

    ``max_events`` is asked for each record: it may change meanwhile.
    """
    batch: Batch | None = None
    for record in records:
        try:
            decoded = batch_of(record)
        except MemoryError:
            raise
        except Exception as error:
            if not isinstance(error, RecordError):
                _logger.exception("a record could not be decoded", offset=record.offset)
            if batch is not None:
                yield batch
                batch = None
            yield Unreadable(record, f"{type(error).__name__}: {error}")
            continue
        if batch is None:
            batch = decoded
        elif (
            len(batch.events) + len(decoded.events) <= max_events()
            and batch.json_bytes + decoded.json_bytes <= max_json_bytes
        ):
            batch.extend(decoded)
        else:
            yield batch
            batch = decoded
    if batch is not None:
        yield batch


def ahead(items: Iterator[T], worker: Executor) -> Iterator[T]:
    """Yield the items in order; while one is in use, the worker computes the next.

    The worker finishes one item before it begins with another, also when the caller stops early.
    """
    item = next(items, None)
    while item is not None:
        upcoming = worker.submit(next, items, None)
        yield item
        item = upcoming.result()
