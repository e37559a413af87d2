"""Applications of a few routes, for tests that need no whole server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from hoglab.http.app import HoglabApp, Routes, build_app
from hoglab.http.fields.dates import utc_now
from hoglab.http.health import Checks
from hoglab.http.identity import Authenticator, Credentials
from hoglab.http.management.config import HttpConfig, Surroundings
from hoglab.http.management.idempotency import Idempotency
from hoglab.http.management.routing import ResourceRouter
from hoglab.http.streams import Streams

QUIET = HttpConfig(access_log=False)


def app_of(
    accounts: Authenticator,
    *routers: ResourceRouter,
    config: HttpConfig = QUIET,
    hot: Mapping[str, ASGIApp] | None = None,
    sdk: Sequence[BaseRoute] = (),
    public: Sequence[BaseRoute] = (),
    paths: Mapping[str, Any] | None = None,
    sessions: Credentials | None = None,
    idempotency: Idempotency | None = None,
    checks: Checks = lambda: (),
    streams: Streams | None = None,
    lag_s: Callable[[], float] = lambda: 0.0,
    now: Callable[[], datetime] = utc_now,
) -> HoglabApp:
    """Return the application of some routes, of a server that has nothing else; close it."""
    return build_app(
        Routes(routers, hot or {}, sdk, public, paths or {}),
        accounts,
        config,
        Surroundings(streams or Streams(), lag_s, None, now),
        checks=checks,
        sessions=sessions,
        idempotency=idempotency,
    )
