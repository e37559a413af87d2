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

    CORE = auto()
    """All that reads events: analysis, jobs, the API and the UI. And ingestion, where only one process can ingest."""
    INGESTION = auto()
    """From the partitions of the event log to persons, the event store and dispatch."""
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


ROLES: Mapping[RoleName, Role] = {
    "all": Role(frozenset({Part.CORE, Part.INGESTION, Part.SDK, Part.RUNS})),
    "core": Role(frozenset({Part.CORE, Part.SDK})),
    # Flags are answered from memory whatever else is away, and capture says itself that it has to wait.
    "edge": Role(frozenset({Part.SDK}), blocking=frozenset({"flags"})),
    "ingest": Role(
        frozenset({Part.INGESTION}),
        blocking=frozenset({"database", "queue", "event log", "event store", "ingestion"}),
    ),
    "deliver": Role(frozenset({Part.RUNS}), blocking=frozenset({"database", "queue", "delivery"})),
}
