"""The reference names the event endpoints that are served, and no others."""

from __future__ import annotations

from typing import Any

from hoglab.capture import Capture, capture_routes
from hoglab.capture.reference import capture_paths
from hoglab.flags.api.reference import flag_paths


def test_every_described_path_is_served(log: Any) -> None:
    capture = Capture(log, lambda _: None)
    served = capture_routes(capture).keys()
    capture.close()
    described = {path.rstrip("/") for path in capture_paths()}
    assert described < served
    unnamed = served - described
    assert unnamed == {"/i/v0/ai", "/s", "/i/v1/logs", "/i/v1/metrics", "/i/v1/traces"}


def test_operations_have_names_of_their_own() -> None:
    operations = [
        operation
        for paths in (capture_paths(), flag_paths())
        for item in paths.values()
        for method, operation in item.items()
        if method in ("get", "post")
    ]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names) == 12
    assert all(operation["responses"]["200"]["content"] for operation in operations)
