"""Capturing of events by functions, into the event log (spec: hog-runtime 4.3)."""

from __future__ import annotations

from typing import Any, Protocol


class CaptureRefusedError(Exception):
    """An event was not taken; the text says why. ``for_now``: it may be later, unchanged."""

    def __init__(self, reason: str, *, for_now: bool = False) -> None:
        super().__init__(reason)
        self.for_now = for_now


class EventSink(Protocol):
    """Takes an event that a function captured, into the project with that id; returns when it is durable."""

    async def __call__(self, project_id: int, event: dict[str, Any], *, insist: bool = False) -> None:
        """Raise `CaptureRefusedError`.

        ``insist``: nobody can be asked to come again, so the event is taken however much waits for ingestion.
        """
        ...
