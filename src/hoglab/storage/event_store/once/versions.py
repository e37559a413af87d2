"""Versions of an event: what is stored of those that come more than once.

Two events are one when they agree in project, uuid, name, distinct id and the day of their timestamp in UTC
(`EventRow.identity`). Of several that are one the last counts, which is how PostHog lets clients correct an event. It
takes the place of the one before, and keeps `EventRow.first_offset`, by which every replay of the log tells that it was
new with another record. An event that says nothing else than before is a resend, and changes nothing. The last is the
one that arrived last: a record that was in quarantine is in the log behind others that corrected its events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from hoglab.storage.event_store.rows import as_json

if TYPE_CHECKING:
    from datetime import datetime

    from hoglab.storage.event_log import SequenceNumber
    from hoglab.storage.event_store import EventRow, Identity

SERVERS_OWN = "$sent_at"
"""The property that capture adds, another one with each request."""
_GEOIP = "$geoip_"


class Said(NamedTuple):
    """Content of an event, beside its identity."""

    timestamp: datetime
    captured_at: datetime
    elements_chain: str
    properties: bytes


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """Version of an event that is stored. ``place`` is how the engine finds its row.

    ``said``: None where it was not read, which counts as something else than anything.
    """

    place: Any
    seq: int
    log_offset: SequenceNumber
    first_offset: SequenceNumber
    timestamp: datetime
    said: Said | None = None


class Replacement(NamedTuple):
    """A stored version that another one takes the place of, which a row at ``position`` of the batch is."""

    old: StoredVersion
    position: int


@dataclass(slots=True)
class WritePlan:
    """Outcome of a batch: positions of rows to be written, of rows that are new events, and what goes."""

    written: list[int] = field(default_factory=list)
    first_offsets: dict[int, SequenceNumber] = field(default_factory=dict)
    """Log offsets with which events were new, by positions of rows: only where that is not the row's own offset."""
    new: list[int] = field(default_factory=list)
    replaced: list[Replacement] = field(default_factory=list)


def settle(
    rows: Sequence[EventRow],
    positions: Iterable[int],
    stored: Mapping[Identity, Sequence[StoredVersion]],
    late: Set[int] = frozenset(),
) -> WritePlan:
    """Return which of the rows at some positions, ascending in the order of the log, are written and what they replace.

    ``stored`` has the versions of their events that are stored already; also of an attempt to store the same rows that
    was cut off, where an engine leaves such. ``late`` is that of `EventBatch`.
    """
    groups: dict[Identity, list[int]] = {}
    for position in positions:
        groups.setdefault(rows[position].identity, []).append(position)
    settled = WritePlan()
    for identity, group in groups.items():
        _settle_event(rows, group, stored.get(identity, ()), settled, late)
    settled.written.sort()
    settled.new.sort()
    return settled


def _settle_event(
    rows: Sequence[EventRow],
    group: Sequence[int],
    stored: Sequence[StoredVersion],
    settled: WritePlan,
    late: Set[int],
) -> None:
    first, last = rows[group[0]], rows[group[-1]]
    known = sorted(
        (version for version in stored if version.log_offset <= last.log_offset), key=attrgetter("log_offset")
    )
    first_offset = min([first.log_offset, *(version.first_offset for version in known)])
    if first_offset == first.log_offset:
        settled.new.append(group[0])
    if group[-1] in late:
        group = _in_time(rows, group, known, late)
        if not group:
            return
        last = rows[group[-1]]
    is_there = bool(known) and known[-1].log_offset == last.log_offset
    if not is_there and not (known and says_the_same(last, known[-1].said)):
        settled.written.append(group[-1])
        if first_offset != last.log_offset:
            settled.first_offsets[group[-1]] = first_offset
        settled.replaced += [Replacement(old, group[-1]) for old in known]
    else:
        settled.replaced += [Replacement(old, group[-1]) for old in known[:-1]]


def _in_time(
    rows: Sequence[EventRow], group: Sequence[int], stored: Sequence[StoredVersion], late: Set[int]
) -> Sequence[int]:
    """Return the rows of an event without late ones at the end that arrived before another version."""
    arrivals = [rows[position].captured_at for position in group]
    latest = max([*arrivals, *(version.said.captured_at for version in stored if version.said is not None)])
    end = len(group)
    while end and group[end - 1] in late and arrivals[end - 1] < latest:
        end -= 1
    return group[:end]


def new_at(
    rows: Sequence[EventRow], positions: Iterable[int], stored: Mapping[Identity, Sequence[StoredVersion]]
) -> list[int]:
    """Return the positions of rows, all stored before, whose events were new with the records of these rows."""
    seen: set[tuple[int, Identity]] = set()
    new: list[int] = []
    for position in positions:
        row = rows[position]
        key = (row.log_offset, row.identity)
        if key not in seen and any(
            version.first_offset == row.log_offset for version in stored.get(row.identity, ())
        ):
            new.append(position)
        seen.add(key)
    return new


def says_the_same(row: EventRow, said: Said | None) -> bool:
    """Return whether an event says the same as a stored version of it.

    What the server adds does not count: when the request was sent; the address, where both have one, and its place;
    the time of an event that came without one.
    """
    if said is None or row.elements_chain != said.elements_chain:
        return False
    is_untimed = row.timestamp == row.captured_at and said.timestamp == said.captured_at
    if row.timestamp != said.timestamp and not is_untimed:
        return False
    return row.properties == said.properties or _sent(row.properties) == _sent(said.properties)


def _sent(properties: bytes) -> bytes:
    """Return properties as the client sent them, in a form that can be compared."""
    try:
        decoded = orjson.loads(properties)
    except orjson.JSONDecodeError:
        decoded = orjson.loads(as_json(properties))
    decoded.pop(SERVERS_OWN, None)
    if isinstance(decoded.get("$ip"), str):
        decoded["$ip"] = ""
    for container in (decoded, decoded.get("$set"), decoded.get("$set_once")):
        if isinstance(container, dict):
            for name in [name for name in container if name.startswith((_GEOIP, "$initial_geoip_"))]:
                del container[name]
    return orjson.dumps(decoded, option=orjson.OPT_SORT_KEYS)
