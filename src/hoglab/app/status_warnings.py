"""Warnings that follow from the figures of a server, each with the limit that it is judged by."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hoglab.functions.status import DISABLED_STATE

MAX_DUE_S = 60.0
"""Seconds for which a due run may wait before the status warns."""
LOG_SHARE = 0.5
"""Share of the event log's limit from which on the status warns."""
DISK_HEADROOM_BYTES = 1024 * 1024 * 1024
"""Space above the limit at which the status warns of a filling disk; less where the limit itself is smaller."""


@dataclass(frozen=True, slots=True)
class StatusLimits:
    """Limits of a server, from its settings."""

    log_bytes: int
    """Size of waiting events beyond which further ones are refused."""
    free_disk_bytes: int
    """Free space on the disk below which events are refused."""


@dataclass(frozen=True, slots=True)
class FunctionTroubles:
    """Functions that do not do what they should."""

    restrained: Mapping[str, int]
    """States of the functions that are slowed down or stopped, by id."""
    away: Collection[str]
    """Ids of the functions whose destination does not answer."""


def warnings_of(
    figures: Mapping[str, Any], troubles: FunctionTroubles, limits: StatusLimits
) -> list[dict[str, Any]]:
    """Return the warnings about the figures of `hoglab.http.system_status.SystemStatusOut`, as on the wire."""
    sources = [
        _about_delivery(figures["delivery"]),
        _about_functions(troubles),
        _about_storage(figures, limits),
    ]
    return [
        {"code": code, "message": message, "hint": hint}
        for source in sources
        for code, message, hint in source
    ]


def _about_delivery(queue: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    due_s, dead = queue["oldest_due_s"], queue["dead"]
    if due_s is not None and due_s > MAX_DUE_S:
        yield (
            "delivery_late",
            f"Runs of functions are late: the oldest has waited {due_s:,.0f} s; the limit is {MAX_DUE_S:.0f} s.",
            "Look for destinations that are slow or away, and for functions that compute for long.",
        )
    if dead:
        yield (
            "dead_letters",
            f"{_counted(dead, 'event')} could not be delivered and became dead letters; the limit is none.",
            "Read the reasons with `hoglab functions dead-letters list`, then try them again or discard them.",
        )


def _about_functions(troubles: FunctionTroubles) -> Iterator[tuple[str, str, str]]:
    stopped = sum(state == DISABLED_STATE for state in troubles.restrained.values())
    slowed = len(troubles.restrained) - stopped
    for count, code, what, hint in (
        (
            stopped,
            "functions_stopped",
            "stopped, as they computed for too long",
            "Make them faster and save them.",
        ),
        (
            slowed,
            "functions_slowed",
            "slowed down, as they compute for long",
            "Make them faster and save them.",
        ),
        (
            len(troubles.away),
            "destinations_away",
            "waiting, as their destinations do not answer",
            "Their runs are kept and tried again. The page of each function has its last error.",
        ),
    ):
        if count:
            yield code, f"{_counted(count, 'function')} {'is' if count == 1 else 'are'} {what}.", hint


def _about_storage(figures: Mapping[str, Any], limits: StatusLimits) -> Iterator[tuple[str, str, str]]:
    waiting, free = figures["event_log"]["waiting_bytes"], figures["disk_free_bytes"]
    if waiting > LOG_SHARE * limits.log_bytes:
        yield (
            "event_log_filling",
            f"The event log is filling: {waiting:,} bytes wait; beyond {limits.log_bytes:,} bytes events are refused.",
            "Find out why ingestion is slow, or raise HOGLAB_EVENT_LOG_MAX_BYTES.",
        )
    headroom = min(limits.free_disk_bytes, DISK_HEADROOM_BYTES)
    if limits.free_disk_bytes <= free < limits.free_disk_bytes + headroom:
        yield (
            "disk_filling",
            f"The disk is filling: {free:,} bytes are free; below {limits.free_disk_bytes:,} bytes events are refused.",
            "Make room, or set HOGLAB_EVENT_RETENTION_DAYS.",
        )


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
