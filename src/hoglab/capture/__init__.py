"""The event endpoints of the SDKs: from a request to a durable record of the event log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoglab.capture.refused import RefusedRequests
from hoglab.capture.routes import v0_routes
from hoglab.capture.service import Capture, CaptureLimits
from hoglab.capture.v1_routes import V1_PATH, V1Endpoint

if TYPE_CHECKING:
    from hoglab.capture.routes import Endpoint

__all__ = ["Capture", "CaptureLimits", "RefusedRequests", "capture_routes"]


def capture_routes(capture: Capture) -> dict[str, Endpoint]:
    """Return every event endpoint by its path (without trailing slash)."""
    return {**v0_routes(capture), V1_PATH: V1Endpoint(capture)}
