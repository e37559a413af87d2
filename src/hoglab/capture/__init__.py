"""The event endpoints of the SDKs: from a request to a durable record of the event log."""

from hoglab.capture.routes import capture_routes
from hoglab.capture.service import Capture, CaptureLimits

__all__ = ["Capture", "CaptureLimits", "capture_routes"]
