"""Applications of a few routes, without a server around them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hoglab.http.app import HoglabApp, Routes, build_app
from hoglab.http.fields.dates import utc_now
from hoglab.http.management.config import HttpConfig, Surroundings
from hoglab.http.streams import Streams

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from hoglab.http.identity import Authenticator
    from hoglab.http.management.routing import ResourceRouter


def app_of(
    accounts: Authenticator,
    *routers: ResourceRouter,
    hot: Mapping[str, ASGIApp],
    access_log: bool = True,
) -> HoglabApp:
    """Return the application of some routes."""
    return build_app(
        Routes(routers, hot),
        accounts,
        HttpConfig(access_log=access_log),
        Surroundings(Streams(), lambda: 0.0, None, utc_now),
        checks=lambda: (),
        sessions=None,
        idempotency=None,
    )
