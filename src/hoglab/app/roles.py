"""Roles of a process: all capabilities, or some of them beside other processes on the same PostgreSQL database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hoglab.settings import RoleName


class Capability(Enum):
    """A capability of a server: one process has it as a whole or not at all."""

    API = auto()
    """The API and the UI: everything that is done on request."""
    ANALYSIS = auto()
    """Background work: daily results, recalculations, cohorts, backfills, exports, maintenance."""
    INGESTION = auto()
    """Ingestion of the partitions of the event log into persons, the event store and dispatch.

    A log of one order is ingested by the process that has the API, with or without this capability.
    """
    SDK = auto()
    """Endpoints for SDKs: capture, flags, remote config, local evaluation; and webhooks."""
    RUNS = auto()
    """Running the functions that are in the queue."""


@dataclass(frozen=True, slots=True)
class Role:
    """The capabilities of a process, and the components whose problems keep it from being ready (``blocking``).

    ``blocking`` is None where each problem says itself whether it blocks: those that keep events from being accepted.
    """

    capabilities: frozenset[Capability]
    blocking: frozenset[str] | None = None


_EVENTS = frozenset({"database", "queue", "event store"})

ROLES: Mapping[RoleName, Role] = {
    "all": Role(
        frozenset(
            {Capability.API, Capability.ANALYSIS, Capability.INGESTION, Capability.SDK, Capability.RUNS}
        )
    ),
    "core": Role(frozenset({Capability.API, Capability.ANALYSIS, Capability.SDK})),
    # Without an event log it refuses events, and answers all other requests.
    "api": Role(frozenset({Capability.API, Capability.SDK}), blocking=_EVENTS),
    "analysis": Role(frozenset({Capability.ANALYSIS}), blocking=_EVENTS),
    # Flags are answered from memory even when other components are away, and capture reports its own problems.
    "edge": Role(frozenset({Capability.SDK}), blocking=frozenset({"flags"})),
    "ingest": Role(frozenset({Capability.INGESTION}), blocking=_EVENTS | {"event log", "ingestion"}),
    "deliver": Role(frozenset({Capability.RUNS}), blocking=frozenset({"database", "queue", "delivery"})),
}
