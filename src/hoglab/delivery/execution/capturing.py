"""Capturing of events by functions, into the event log (spec: hog-runtime 4.3)."""

from __future__ import annotations

from typing import Any, Protocol


class CaptureRefusedError(Exception):
    """An event was refused; the text says why. ``for_now`` means that it may be accepted later, unchanged."""

    def __init__(self, reason: str, *, for_now: bool = False) -> None:
        super().__init__(reason)
        self.for_now = for_now


class EventSink(Protocol):
    """Function that stores a captured event in the project with that id; returns when it is durable."""

    async def __call__(self, project_id: int, event: dict[str, Any], *, insist: bool = False) -> None:
        """Store an event. Raises `CaptureRefusedError`.

        ``insist``: nobody can send it again, so the event is accepted however much waits for ingestion.
        """
        ...
