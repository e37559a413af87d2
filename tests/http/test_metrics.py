"""Counts of requests as Prometheus reads them."""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from hoglab.http.metrics import observe


def samples(route):
    families = text_string_to_metric_families(generate_latest(REGISTRY).decode())
    return {
        (
            sample.name,
            *(value for name, value in sorted(sample.labels.items()) if name != "route"),
        ): sample.value
        for family in families
        for sample in family.samples
        if sample.labels.get("route") == route
    }


def test_times_and_counts_of_a_route():
    for status, seconds in ((200, 0.001), (200, 0.02), (404, 0.02), (200, 100.0)):
        observe("GET", "/test/times", status, seconds)
    found = samples("/test/times")
    name = "hoglab_http_request_seconds"
    assert found[f"{name}_count", "GET"] == 4
    assert found[f"{name}_sum", "GET"] == pytest.approx(100.041)
    at_most = {
        bound: found[f"{name}_bucket", bound, "GET"] for bound in ("0.001", "0.01", "0.025", "60.0", "+Inf")
    }
    assert at_most == {"0.001": 1, "0.01": 1, "0.025": 3, "60.0": 3, "+Inf": 4}
    assert found["hoglab_http_requests_total", "GET", "200"] == 3
    assert found["hoglab_http_requests_total", "GET", "404"] == 1


def test_methods_that_nobody_knows_are_one():
    for method in ("BREW", "BREW", "WHEN"):
        observe(method, "/test/methods", 405, 0.01)
    assert samples("/test/methods")["hoglab_http_requests_total", "other", "405"] == 3
