"""One record of the event log: an accepted request, kept as it arrived, and what only capture knew.

In a log of several partitions a request whose events belong to several of them is a record in each, with JSON text of
its own (`hoglab.capture.partitioning`).

Layout: one version byte, a checksum of all behind it (CRC-32, 4 bytes, big-endian; none in version 1), the length
of the header (2 bytes, big-endian), the header (MessagePack), then the JSON text of the request, gzip-compressed
when it came so. The record was validated before it was
written, so that a reader fails on it only when it was damaged or written by a newer program.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import NamedTuple
from uuid import UUID
from zlib import crc32

import msgspec
from uuid_utils import uuid4

from hoglab.capture.envelope import Envelope, read_envelope
from hoglab.capture.refusal import Refusal
from hoglab.http.requests.decompression import BrokenDataError, TooLargeError, gunzip
from hoglab.storage.database.types import from_micros, to_micros

VERSION = 2
MAX_RECORD_JSON_BYTES = 64 * 1024 * 1024
"""Maximum size that a reader decompresses; above every limit that capture may be set to."""

_UUID_VERSION_BITS = 0x7 << 76
_UUID_VARIANT_BITS = 0x2 << 62


class RecordError(Exception):
    """The bytes are not a record that this program can read."""


class RecordHeader(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Facts about a request that capture stores with it; new fields are added at the end, with defaults."""

    project_id: int
    received_at_us: int  # microseconds since the epoch
    id: bytes  # of a random uuid, the seed of the uuids of events that came without one
    is_gzip: bool
    is_engage: bool
    ip: str | None
    sent_at_ms: int | None  # from the query; one in the body wins
    max_event_bytes: int
    indexes: bytes | None = None
    """Indexes of the events in the whole request, four bytes each, big-endian; None for a whole request."""
    is_replayed: bool = False
    """Whether the record was in quarantine, so that its place in the log is behind what arrived after it."""

    @property
    def received_at(self) -> datetime:
        return from_micros(self.received_at_us)

    def index_in_request(self, index: int) -> int:
        """Return the index in its request of an event of the record."""
        return index if self.indexes is None else int.from_bytes(self.indexes[4 * index : 4 * index + 4])


class DecodedRecord(NamedTuple):
    """A decoded record, with ``json_bytes``, the size of its JSON text."""

    header: RecordHeader
    envelope: Envelope
    json_bytes: int


_HEADER_AT = {1: 3, VERSION: 7}
"""Offset of the header in each version."""
_HEADER = msgspec.msgpack.Decoder(RecordHeader)


def new_header(
    *,
    project_id: int,
    received_at: datetime,
    is_gzip: bool,
    is_engage: bool,
    ip: str | None,
    sent_at_ms: int | None,
    max_event_bytes: int,
) -> RecordHeader:
    """Return a header with a fresh random id."""
    return RecordHeader(
        project_id,
        to_micros(received_at),
        uuid4().bytes,
        is_gzip,
        is_engage,
        ip,
        sent_at_ms,
        max_event_bytes,
    )


def encode_record(header: RecordHeader, stored: bytes) -> bytes:
    """Return the bytes of a record; ``stored`` is JSON text or a gzip of it, as the header says."""
    head = msgspec.msgpack.encode(header)
    size = len(head).to_bytes(2)
    checksum = crc32(stored, crc32(head, crc32(size)))
    return b"".join((bytes((VERSION,)), checksum.to_bytes(4), size, head, stored))


def read_header(record: bytes) -> tuple[RecordHeader, memoryview]:
    """Return the header and the stored body of a record. Raises `RecordError`."""
    if len(record) < 3 or record[0] not in _HEADER_AT:
        raise RecordError("the record has an unknown version" if record else "the record is empty")
    start = _HEADER_AT[record[0]]
    if record[0] == VERSION and crc32(memoryview(record)[5:]) != int.from_bytes(record[1:5]):
        raise RecordError("its checksum is wrong: the record was damaged on disk")
    end = start + int.from_bytes(record[start - 2 : start])
    try:
        header = _HEADER.decode(record[start:end])
    except ValueError as error:  # of msgspec, and of text that is not UTF-8
        raise RecordError(f"the header of the record cannot be read: {error}") from None
    return header, memoryview(record)[end:]


def as_replayed(record: bytes) -> bytes:
    """Return a record that says that it is in the log once more; one that cannot be read as it is."""
    try:
        header, stored = read_header(record)
    except RecordError:
        return record
    return encode_record(msgspec.structs.replace(header, is_replayed=True), bytes(stored))


def decode_record(record: bytes) -> DecodedRecord:
    """Read a record back into its events. Raises `RecordError`."""
    header, stored = read_header(record)
    try:
        text = gunzip(bytes(stored), MAX_RECORD_JSON_BYTES) if header.is_gzip else bytes(stored)
        envelope = read_envelope(text, engage=header.is_engage, is_new=False)
    except (Refusal, BrokenDataError, TooLargeError) as error:
        raise RecordError(f"the events of the record cannot be read: {error}") from None
    if header.indexes is not None and len(header.indexes) != 4 * len(envelope.events):
        raise RecordError("the record does not say where each of its events was in the request")
    return DecodedRecord(header, envelope, len(text))


def derived_uuid(header: RecordHeader, index: int) -> UUID:
    """Return the UUIDv7 of the event at ``index`` when the client gave none: always the same for one request.

    Whether that is one record or several. Its time is the time of capture (spec: sdk-wire 1.4).
    """
    digest = hashlib.blake2b(
        header.index_in_request(index).to_bytes(4), key=header.id, digest_size=10
    ).digest()
    value = (header.received_at_us // 1000) << 80 | int.from_bytes(digest)
    value &= ~(0xF << 76) & ~(0x3 << 62)
    return UUID(int=value | _UUID_VERSION_BITS | _UUID_VARIANT_BITS)
