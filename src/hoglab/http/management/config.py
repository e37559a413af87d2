"""Settings of the HTTP application, and the parts of the server around it that it asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hoglab.http.requests.body import BODY_TIMEOUT_S, MAX_BODY_BYTES
from hoglab.http.requests.budget import BUDGET_BYTES
from hoglab.http.requests.unread import ANSWERS_BYTES

if TYPE_CHECKING:
    from datetime import datetime

    from hoglab.http.streams import Streams

HANDLER_THREADS = 16
"""Maximum number of handlers that run at the same time."""
HEAVY_THREADS = 4
"""Maximum number of slow handlers (queries over events, say) at the same time, beside the others. For one project, one
less: see `FairThreads`."""
WRITE_TIMEOUT_S = 30.0
"""Time limit for a client to read one part of a response."""


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """Settings and limits of the HTTP application."""

    public_url: str | None = None
    """Base URL of links in responses; default: the address that the request was sent to."""
    rate_limit_enabled: bool = False
    access_log: bool = True
    max_body_bytes: int = MAX_BODY_BYTES
    """Largest body of a management request. The hot endpoints have limits of their own."""
    body_budget_bytes: int = BUDGET_BYTES
    """Maximum memory of all bodies together that are being received or worked on."""
    answer_budget_bytes: int = ANSWERS_BYTES
    """Maximum memory of all long answers together that clients have not read yet."""
    body_timeout_s: float = BODY_TIMEOUT_S
    write_timeout_s: float = WRITE_TIMEOUT_S
    metrics_token: str | None = None
    """Token for ``/metrics``; without one, only this machine may read it."""
    late_check_blocks: bool = True
    """Whether a health check that does not end makes the process not ready."""
    home: str | None = None
    """Path to which ``/`` redirects browsers; None: they get a page there."""
    handler_threads: int = HANDLER_THREADS
    heavy_threads: int = HEAVY_THREADS


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Parts of the server that the HTTP application asks."""

    streams: Streams
    """The open-ended answers of the routers."""
    lag_s: Callable[[], float]
    """Seconds by which stored events are late."""
    catch_up: Callable[[], object] | None
    """Called before each request to the routers; None where no other process changes anything."""
    now: Callable[[], datetime]
