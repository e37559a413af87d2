"""Code that nothing calls: functions, methods, classes and properties that the product never names."""

from __future__ import annotations

from tests.house.sources import ROOT
from vulture import Vulture

DECORATED = (
    # A decorator hands them to whoever calls them.
    "@*.get", "@*.post", "@*.put", "@*.patch", "@*.delete", "@*.command", "@*.callback", "@declare*", "@function*",
    "@_plain*", "@compiles*", "@validator", "@*_validator*",
)  # fmt: skip
CALLED_BY_LIBRARIES = (
    "connection_made", "connection_lost", "data_received",  # asyncio
    "on_message_begin", "on_header", "on_headers_complete", "on_body", "on_message_complete",  # httptools
    "do_POST", "log_message", "handle_error",  # http.server
    "process_bind_param", "process_result_value",  # SQLAlchemy
    "readinto",  # io
    "finalize",  # sqlite3
    "describe",  # prometheus_client
    "render_to_output",  # python-liquid
)  # fmt: skip
OFFERED = (
    # By libraries that others may use alone.
    "of_clusters", "clamp", "point_estimate",
    # To those who make organizations and users; there is no endpoint for it.
    "create_organization", "create_user",
    # To an installation that keeps its events in ClickHouse: what the statements of analysis are in its dialect.
    "ClickHouse",
)  # fmt: skip
KINDS = {"function", "method", "class", "property"}


def test_no_code_is_dead() -> None:
    vulture = Vulture(ignore_names=[*CALLED_BY_LIBRARIES, *OFFERED], ignore_decorators=list(DECORATED))
    vulture.scavenge([str(ROOT)])
    found = [item for item in vulture.get_unused_code(min_confidence=60) if item.typ in KINDS]
    assert [f"{item.filename}:{item.first_lineno} {item.name}" for item in found] == []
