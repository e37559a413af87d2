"""Roles of a process: everything, or a part of it beside others on the same PostgreSQL database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hoglab.settings import RoleName


class Part(Enum):
    """A part of a server that is in one process as a whole."""

    API = auto()
    """The API and the UI: whatever is done, read and computed on request."""
    ANALYSIS = auto()
    """Work of the background: daily results, recalculations, cohorts, backfills, exports, upkeep."""
    INGESTION = auto()
    """From the partitions of the event log to persons, the event store and dispatch.

    A log of one order is ingested by the process that has the API, whether this is among its parts or not.
    """
    SDK = auto()
    """Endpoints for SDKs: capture, flags, remote config, local evaluation; and webhooks."""
    RUNS = auto()
    """Running functions: what is in the queue."""


@dataclass(frozen=True, slots=True)
class Role:
    """``parts``: what the process does. ``blocking``: components whose problems keep it from being ready.

    None: those that say so themselves, which keep events from being taken.
    """

    parts: frozenset[Part]
    blocking: frozenset[str] | None = None


_EVENTS = frozenset({"database", "queue", "event store"})

ROLES: Mapping[RoleName, Role] = {
    "all": Role(frozenset({Part.API, Part.ANALYSIS, Part.INGESTION, Part.SDK, Part.RUNS})),
    "core": Role(frozenset({Part.API, Part.ANALYSIS, Part.SDK})),
    # Without an event log it takes no events, and says so to whoever sends one; all else is answered.
    "api": Role(frozenset({Part.API, Part.SDK}), blocking=_EVENTS),
    "analysis": Role(frozenset({Part.ANALYSIS}), blocking=_EVENTS),
    # Flags are answered from memory whatever else is away, and capture says itself that it has to wait.
    "edge": Role(frozenset({Part.SDK}), blocking=frozenset({"flags"})),
    "ingest": Role(frozenset({Part.INGESTION}), blocking=_EVENTS | {"event log", "ingestion"}),
    "deliver": Role(frozenset({Part.RUNS}), blocking=frozenset({"database", "queue", "delivery"})),
}
