"""What Prometheus learns about requests."""

from __future__ import annotations

from functools import lru_cache

from prometheus_client import Counter, Histogram

_SECONDS = Histogram(
    "hoglab_http_request_seconds",
    "Time from the arrival of a request to the end of its answer.",
    ["method", "route"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
_REQUESTS = Counter("hoglab_http_requests", "Requests answered.", ["method", "route", "status"])
_KNOWN = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def observe(method: str, route: str, status: int, seconds: float) -> None:
    """Count one answered request. ``route`` is a template, never a path: paths would be without number."""
    histogram, counter = _children(method if method in _KNOWN else "other", route, status)
    histogram.observe(seconds)
    counter.inc()


@lru_cache(maxsize=4096)
def _children(method: str, route: str, status: int) -> tuple[Histogram, Counter]:
    return _SECONDS.labels(method, route), _REQUESTS.labels(method, route, str(status))
