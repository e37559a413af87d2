"""One request as records of the event log: each event in the partition of its distinct id.

A request whose events all belong to one partition is one record, the bytes that came: each request, where the log has
one partition. Others become a record for each partition, with JSON text encoded again and the places that the events
had, so that derived uuids are the same however many partitions there are.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from hoglab.capture.envelope import NO_JSON, IncomingEvent
from hoglab.capture.records import RecordError, decode_record, encode_record
from hoglab.capture.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hoglab.capture.records import DecodedRecord
    from hoglab.storage.event_log import LogWriter

MAX_HEADER_INDEXES = 10_000
"""Events of a part of a request, whose places are in the header: it is at most 64 KiB."""

_INLINE_BYTES = 256 * 1024
"""Larger records are divided in a thread, so that other requests go on."""

_ENCODER = msgspec.json.Encoder()


def partition_of(project_id: int, distinct_id: str, partitions: int) -> int:
    """Return the partition of a distinct id: 64-bit xxHash of the project (4 bytes, big-endian) and the id, modulo."""
    if partitions == 1:
        return 0
    import xxhash  # it is installed where Kafka's client is

    return xxhash.xxh64_intdigest(project_id.to_bytes(4) + distinct_id.encode()) % partitions


async def append_record(
    log: LogWriter, payload: bytes, *, insist: bool = False, owner: int | None = None, alone: bool = False
) -> None:
    """Store a record of a request in the partitions of its events; see `LogWriter.append_all` for the options.

    Raises `EventLogFullError`, and `Refusal` 413 for an event that does not fit by itself.
    """
    partitions, most = log.partitions, log.max_record_bytes
    if partitions == 1 and len(payload) <= most:
        records = [(0, payload)]
    elif len(payload) <= _INLINE_BYTES:
        records = divided(payload, partitions, most)
    else:
        records = await asyncio.to_thread(divided, payload, partitions, most)
    await log.append_all(records, insist=insist, owner=owner, alone=alone)


async def append_again(log: LogWriter, payload: bytes) -> None:
    """Store a record that was in a partition before, however much waits; one that cannot be read as it is."""
    try:
        await append_record(log, payload, insist=True)
    except RecordError:
        await log.append_all([(0, payload)], insist=True)


def divided(record: bytes, partitions: int, max_bytes: int) -> list[tuple[int, bytes]]:
    """Return the records of a request with their partitions, none larger than ``max_bytes``. Raises `Refusal` 413."""
    decoded = decode_record(record)
    places: dict[int, list[int]] = {}
    known: dict[str, int] = {}
    for index, event in enumerate(decoded.envelope.events):
        distinct_id: str = event.distinct_id
        partition = known.get(distinct_id)
        if partition is None:
            partition = known[distinct_id] = partition_of(decoded.header.project_id, distinct_id, partitions)
        places.setdefault(partition, []).append(index)
    if len(places) == 1 and len(record) <= max_bytes:
        return [(next(iter(places)), record)]
    return [
        (partition, part)
        for partition, indexes in places.items()
        for part in _parts(decoded, indexes, max_bytes)
    ]


def _parts(whole: DecodedRecord, indexes: Sequence[int], max_bytes: int) -> list[bytes]:
    """Return some events of a request as records of at most ``max_bytes``, in order."""
    if len(indexes) <= MAX_HEADER_INDEXES:
        record = _part(whole, indexes)
        if len(record) <= max_bytes:
            return [record]
        if len(indexes) == 1:
            raise Refusal(413, "maximum event size exceeded")
    half = len(indexes) // 2
    return [*_parts(whole, indexes[:half], max_bytes), *_parts(whole, indexes[half:], max_bytes)]


def _part(whole: DecodedRecord, indexes: Sequence[int]) -> bytes:
    header, envelope = whole.header, whole.envelope
    body = {
        "api_key": envelope.token,
        "historical_migration": envelope.historical_migration,
        "sent_at": envelope.sent_at,
        "batch": [_as_json(envelope.events[index]) for index in indexes],
    }
    places = b"".join(header.index_in_request(index).to_bytes(4) for index in indexes)
    return encode_record(
        msgspec.structs.replace(header, is_gzip=False, indexes=places), _ENCODER.encode(body)
    )


def _as_json(event: IncomingEvent) -> dict[str, Any]:
    """Return JSON object of which `read_envelope` makes the same event."""
    fields: dict[str, Any] = {"event": event.event, "distinct_id": event.distinct_id}
    if event.uuid is not None:
        fields["uuid"] = event.uuid
    if event.timestamp is not None:
        fields["timestamp"] = event.timestamp
    if event.offset is not None:
        fields["offset"] = event.offset
    return fields | {name: raw for name, raw in event.objects().items() if raw is not NO_JSON}
