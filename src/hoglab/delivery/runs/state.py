"""The durable state of an invocation (spec: hog-runtime 4.6): JSON, with the event's globals spliced in."""

from __future__ import annotations

import hashlib
from collections.abc import Set
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from hoglab.storage.json_text import json_bytes

if TYPE_CHECKING:
    from hoglab.storage.event_store import EventRow

INVOCATIONS = UUID("8a4f7f4e-6c0d-5e0b-9d56-0f3c2c1b7a11")
"""Namespace of the ids of invocations that events cause."""
_NAMESPACE = hashlib.sha1(INVOCATIONS.bytes, usedforsecurity=False)
_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


NOTHING = msgspec.Raw(b"")
"""Stands for missing JSON."""


class InvalidStateError(ValueError):
    """A stored state cannot be read."""


class Timing(msgspec.Struct, array_like=True):
    """Duration of one stretch: ``kind`` is ``hog`` (computing) or ``async_function`` (one attempt of a call)."""

    kind: str
    duration_ms: float


def mapping_named(mapping_id: str | None, number: int | None) -> str | None:
    """Return the id of the mapping of a run. A mapping that was stored without an id has its number as id."""
    return str(number) if mapping_id is None and number is not None else mapping_id


class Item(msgspec.Struct, omit_defaults=True):
    """One of the invocations that were merged into a batch."""

    id: str
    globals: msgspec.Raw
    event_uuid: str | None = None
    distinct_id: str | None = None
    person_id: str | None = None
    mapping_id: str | None = None
    mapping: int | None = None  # its number, from before mappings had ids
    first_scheduled_us: int | None = None

    def __post_init__(self) -> None:
        self.mapping_id, self.mapping = mapping_named(self.mapping_id, self.mapping), None


class RunState(msgspec.Struct, omit_defaults=True):
    """State of a run. ``globals`` never holds inputs.

    The fields below ``journal`` are set only after a program was suspended: from then on it uses the source and the
    inputs that it began with.
    """

    globals: msgspec.Raw
    event_uuid: str | None = None
    distinct_id: str | None = None
    person_id: str | None = None
    mapping_id: str | None = None
    mapping: int | None = None  # its number, from before mappings had ids
    items: list[Item] = []  # of a batch; the fields above are those of the first item
    rerun: int = 0  # how often it was run again from its result
    first_scheduled_us: int | None = None
    attempts: int = 0  # of the current call
    logins: dict[str, str] = {}  # by key, the mark of each that the run goes by
    has_renewed: bool = False  # whether the log-in is new, after one that was refused
    postponed: int = 0  # how often the program asked to be run again later
    sleep_until: float | None = None  # Unix time; the current call is `sleep`, which ends then
    timings: list[Timing] = []
    error: str | None = None
    journal: msgspec.Raw = NOTHING
    source: str | None = None
    sealed_inputs: str | None = None  # encrypted: they may hold secrets
    sealed_request: str | None = None  # of a webhook, encrypted too: its headers may hold secrets

    def __post_init__(self) -> None:
        self.mapping_id, self.mapping = mapping_named(self.mapping_id, self.mapping), None

    def mapping_ids(self) -> list[str | None]:
        """Return the mappings that the run is for; of a batch, those of all its events."""
        return [item.mapping_id for item in self.items or (self,)]


_DECODER = msgspec.json.Decoder(RunState)
_ENCODER = msgspec.json.Encoder()


def encode_state(state: RunState) -> bytes:
    return _ENCODER.encode(state)


def decode_state(data: bytes) -> RunState:
    """Return the decoded state. Raises `InvalidStateError`."""
    try:
        return _DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise InvalidStateError(f"the state of the invocation cannot be read: {error}") from None


def without_persons(data: bytes, person_ids: Set[str], distinct_ids: Set[str]) -> bytes | None:
    """Return the state of an invocation without events of some persons, None when it was about nobody else.

    A batch that was under way begins again with the others: its data may belong to the persons who are gone.
    """
    try:
        state = decode_state(data)
    except InvalidStateError:
        is_named = any(identifier.encode() in data for identifier in (*person_ids, *distinct_ids))
        return None if is_named else data

    def is_gone(run: RunState | Item) -> bool:
        return run.person_id in person_ids or run.distinct_id in distinct_ids

    items = [item for item in state.items if not is_gone(item)]
    if not items:
        return None if state.items or is_gone(state) else data
    if len(items) == len(state.items):
        return data
    return encode_state(state_of_batch(items, state.source, rerun=state.rerun))


def state_of_batch(items: list[Item], source: str | None, *, rerun: int = 0) -> RunState:
    """Return the state of a run on several events, which has not begun."""
    first = items[0]
    return RunState(
        globals=first.globals,
        event_uuid=first.event_uuid,
        distinct_id=first.distinct_id,
        person_id=first.person_id,
        mapping_id=first.mapping_id,
        items=items,
        rerun=rerun,
        source=source,
        first_scheduled_us=first.first_scheduled_us,
    )


def raw_json(value: Any) -> msgspec.Raw:
    """Return a value as JSON that is written into states unchanged."""
    return msgspec.Raw(json_bytes(value))


def key_of(row: EventRow) -> str:
    """Return a text that is the same for the same event, and another one for others with its uuid."""
    _, _, day, name, distinct_id = row.identity
    return f"{row.uuid}/{day}/{len(name)}/{name}/{distinct_id}"


def invocation_id(function_id: str, event_key: str, mapping_id: str | None) -> str:
    """Return the id of an invocation, the same for the same cause: a replayed batch of events starts nothing twice.

    It is ``str(uuid5(INVOCATIONS, …))``, written out because there is one for every run that events cause.
    """
    digest = _NAMESPACE.copy()
    digest.update(f"{function_id}/{event_key}/{'' if mapping_id is None else mapping_id}".encode())
    text = digest.hexdigest()
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{_VARIANT[text[16]]}{text[17:20]}-{text[20:32]}"
