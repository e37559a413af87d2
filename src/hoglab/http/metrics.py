"""Metrics of requests for Prometheus.

Every request is counted while its client waits, so counting is a list lookup and an addition; what Prometheus wants
to read is made of that when it asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import REGISTRY, CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import INF, floatToGoString

from hoglab.old_names import OldMetricNames

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, INF)
"""The bounds of the histogram of times."""
_KNOWN = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class _Answers:
    """Number of requests of a kind by their bucket of time, and their durations in sum."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * len(BUCKETS_S)
        self.seconds = 0.0


_answers: dict[tuple[str, str, int], _Answers] = {}
"""Counts by method, route and status: as many as there are routes."""


def observe(method: str, route: str, status: int, seconds: float) -> None:
    """Count one answered request. ``route`` is a template, never a path: the number of paths is unlimited."""
    answers = _answers.get((method, route, status))
    if answers is None:
        answers = _answers.setdefault((method if method in _KNOWN else "other", route, status), _Answers())
    answers.buckets[bisect_left(BUCKETS_S, seconds)] += 1
    answers.seconds += seconds


class _RequestCollector(Collector):
    """Shows the answers as a histogram of times and a counter."""

    def collect(self) -> Iterator[Metric]:
        times = HistogramMetricFamily(
            "hoglab_http_request_seconds",
            "Time from the arrival of a request to the end of its answer.",
            labels=["method", "route"],
        )
        requests = CounterMetricFamily(
            "hoglab_http_requests", "Requests answered.", labels=["method", "route", "status"]
        )
        routes: dict[tuple[str, str], list[_Answers]] = {}
        for (method, route, status), answers in list(_answers.items()):
            requests.add_metric([method, route, str(status)], sum(answers.buckets))
            routes.setdefault((method, route), []).append(answers)
        for (method, route), statuses in routes.items():
            counts = accumulate(map(sum, zip(*(answers.buckets for answers in statuses), strict=True)))
            bounds = map(floatToGoString, BUCKETS_S)
            times.add_metric(
                [method, route],
                list(zip(bounds, counts, strict=True)),
                sum(answers.seconds for answers in statuses),
            )
        yield times
        yield requests


REGISTRY.register(_RequestCollector())
REGISTRY.register(OldMetricNames(REGISTRY))
