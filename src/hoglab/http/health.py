"""Probes: whether the process is up, whether it accepts events, and its metrics (spec: sdk-wire 1.1)."""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import REGISTRY, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.responses import Response

from hoglab.http import errors
from hoglab.http.management.access import key_from_header
from hoglab.http.requests.body import header
from hoglab.http.requests.client_ip import is_local
from hoglab.http.responses import json_response

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from starlette.types import ASGIApp, Receive, Scope, Send


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that does not work as it should, for the operator.

    ``component``: the part of the server, such as "event log". ``text``: one line, what is wrong and what to do about
    it; strangers may read it, so it names no user's data. ``blocks``: whether events cannot be taken because of it;
    the others are told, and the server stays in the load balancer.
    """

    component: str
    text: str
    blocks: bool = True

    def __str__(self) -> str:
        return f"{self.component}: {self.text}"


Checks = Callable[[], Sequence[Problem]]
"""Function that returns the present problems; nothing when there are none. May block: it runs in a thread."""

CHECKS_TIMEOUT_S = 5.0
"""A check that takes longer than this counts as failed."""

_log = structlog.get_logger(__name__)


class _ProblemsCollector(Collector):
    """The problems of the last look, for ``/metrics``.

    They change as a whole: of a gauge that is emptied and filled again, one who reads between would see nothing wrong.
    """

    def __init__(self) -> None:
        self.latest: Sequence[Problem] = ()

    def collect(self) -> Iterator[Metric]:
        gauge = GaugeMetricFamily(
            "hoglab_problems",
            "What does not work as it should, as health tells it.",
            labels=["component", "blocking"],
        )
        counts = Counter((problem.component, "yes" if problem.blocks else "no") for problem in self.latest)
        for labels, count in counts.items():
            gauge.add_metric(labels, count)
        yield gauge


_collector = _ProblemsCollector()
REGISTRY.register(_collector)


def probes(
    checks: Checks, metrics_token: str | None = None, *, late_blocks: bool = True
) -> dict[str, ASGIApp]:
    """Return the probe endpoints by their exact paths.

    ``late_blocks``: whether a check that does not end keeps the process from being ready.

    ``metrics_token``: what readers of ``/metrics`` send as ``Authorization: Bearer``; without one, only this machine
    may read them.

    ``/_liveness`` answers as long as the process does: who restarts the server asks it. ``/_readiness`` is 503 while
    events cannot be taken: who sends requests to the server asks it. Both have short names, ``/_livez`` and
    ``/_readyz``. ``/_health`` tells of all problems, always as 200.
    """

    running: list[asyncio.Task[list[Problem]]] = []

    async def current_problems() -> list[Problem]:
        """Return the problems, by one check at a time, however many requests there are: anybody may send them."""
        if not running:
            running.append(asyncio.create_task(_problems(checks, late_blocks)))
            running[0].add_done_callback(lambda _: running.clear())
        return await asyncio.shield(running[0])

    async def ready(_scope: Scope) -> Response:
        problems = await current_problems()
        reasons = [str(problem) for problem in problems if problem.blocks]
        body = {"status": "not ready", "reasons": reasons} if reasons else {"status": "ok"}
        degraded = [str(problem) for problem in problems if not problem.blocks]
        return json_response(body | ({"degraded": degraded} if degraded else {}), 503 if reasons else 200)

    async def healthy(_scope: Scope) -> Response:
        problems = [str(problem) for problem in await current_problems()]
        return json_response({"status": "degraded", "problems": problems} if problems else {"status": "ok"})

    async def metrics(scope: Scope) -> Response:
        _check_reader(scope, metrics_token)
        _collector.latest = await current_problems()
        text = await asyncio.to_thread(generate_latest)
        return Response(text, headers={"content-type": CONTENT_TYPE_LATEST, "cache-control": "no-store"})

    return {
        "/_health": _get(healthy),
        "/_liveness": _get(_alive),
        "/_livez": _get(_alive),
        "/_readiness": _get(ready),
        "/_readyz": _get(ready),
        "/metrics": _get(metrics),
    }


async def _alive(_scope: Scope) -> Response:
    return json_response({"status": "ok"})


def _check_reader(scope: Scope, token: str | None) -> None:
    """Raise 401 unless the caller may read the metrics, which name routes and functions of all projects."""
    if token is None:
        if not is_local(scope):
            raise errors.metrics_refused(
                "Set HOGLAB_METRICS_TOKEN, and send it as `Authorization: Bearer <token>`."
            )
        return
    sent = key_from_header(header(scope, b"authorization")) or ""
    if not hmac.compare_digest(sent.encode(), token.encode()):
        raise errors.metrics_refused(
            "Send the value of HOGLAB_METRICS_TOKEN as `Authorization: Bearer <token>`."
        )


async def _problems(checks: Checks, late_blocks: bool) -> list[Problem]:
    try:
        async with asyncio.timeout(CHECKS_TIMEOUT_S):
            return list(await asyncio.to_thread(checks))
    except TimeoutError:
        text = f"the check did not end within {CHECKS_TIMEOUT_S:g} s"
        return [Problem("health", text, blocks=late_blocks)]
    except Exception as error:
        _log.exception("health_check_failed")
        return [Problem("health", f"the check failed: {type(error).__name__}")]


def _get(endpoint: Callable[[Scope], Awaitable[Response]]) -> ASGIApp:
    """Return an ASGI app that answers GET and HEAD with what ``endpoint`` returns."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            raise errors.method_not_allowed(scope["method"], "GET, HEAD")
        response = await endpoint(scope)
        await response(scope, receive, send)

    return app
