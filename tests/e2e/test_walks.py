"""Walks through the source on one real server, beside what docs/architecture.md says of them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import httpx
import pytest
from tests.waiting import wait_for
from tests.ways import listed, tracing

from hoglab.app import Hoglab
from hoglab.settings import Settings

OTHER_ROLES = {"app/roles.py"}
"""Modules that the walk of a start names for other roles; they are data, which nothing calls."""
KEY, TOKEN = "phx_" + "k" * 43, "phc_" + "t" * 43
METRIC = {
    "kind": "ExperimentMetric",
    "metric_type": "mean",
    "source": {"kind": "EventsNode", "event": "bought"},
}
CEILINGS = {
    "flags": 25,
    "PATCH of an experiment": 60,
    "PATCH of a function": 80,
    "6. A start with every role": 275,
}
"""Maximum numbers of modules that a request itself passes through, and a start with all of its threads."""
FUNCTION = {
    "type": "destination",
    "name": "Hook",
    "enabled": True,
    "hog": "fetch(inputs.url)",
    "inputs_schema": [{"key": "url", "type": "string", "secret": True}],
    "inputs": {"url": {"value": "https://hooks.example.com/{event.event}"}},
    "filters": {"events": [{"id": "bought", "type": "events"}]},
}


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The modules that each walk passed through, by its heading."""
    data = tmp_path_factory.mktemp("walks") / "data"
    settings = Settings(data=data, bootstrap_api_key=KEY, bootstrap_project_token=TOKEN, access_log=False)
    passed: dict[str, set[str]] = {}
    with tracing() as trace, asyncio.Runner() as runner:
        trace.is_on = True
        server = Hoglab.open(settings)
        server.start()
        passed["6. A start with every role"] = set(trace.modules)
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(server.http),
            base_url="http://hoglab.test",
            headers={"Authorization": f"Bearer {KEY}"},
        )

        def ask(method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
            response = runner.run(client.request(method, path, json=body))
            assert response.is_success, response.text
            answer: dict[str, Any] = response.json()
            return answer

        def walk(heading: str, *requests: tuple[str, str, dict[str, Any]]) -> None:
            """Send requests, and wait for the threads beside them to reach what the document lists."""
            trace.clear()
            for request in requests:
                ask(*request)
            with contextlib.suppress(AssertionError):  # told by the test, with the modules that are missing
                wait_for(lambda: listed(heading) <= trace.modules)
            passed[heading] = set(trace.modules)

        experiments = "/api/projects/1/experiments/"
        experiment = {"name": "Price", "feature_flag_key": "price", "metrics": [METRIC]}
        walk(
            "3. Creating and changing an experiment",
            ("POST", experiments, experiment),
            ("PATCH", f"{experiments}1/", {"name": "Prices"}),
        )
        flags = ("POST", "/flags/?v=2", {"api_key": TOKEN, "distinct_id": "ann"})
        walk("2. A request for flags", flags)
        functions = "/api/projects/1/hog_functions/"
        walk("5. Creating a function", ("POST", functions, FUNCTION))
        function_id = runner.run(client.get(functions)).json()["results"][0]["id"]
        for name, request in {
            "flags": flags,
            "PATCH of an experiment": ("PATCH", f"{experiments}1/", {"name": "Price"}),
            "PATCH of a function": ("PATCH", f"{functions}{function_id}/", {"name": "Webhook"}),
        }.items():
            trace.clear()
            ask(*request)
            passed[name] = trace.of_request()
        trace.is_on = False
        runner.run(client.aclose())
        server.stop()
    return passed


@pytest.mark.parametrize(
    "heading",
    [
        "2. A request for flags",
        "3. Creating and changing an experiment",
        "5. Creating a function",
        "6. A start with every role",
    ],
)
def test_a_walk_passes_through_the_modules_that_the_document_lists(
    walks: dict[str, set[str]], heading: str
) -> None:
    assert listed(heading) - OTHER_ROLES - walks[heading] == set()


@pytest.mark.parametrize(("request_name", "ceiling"), CEILINGS.items())
def test_a_request_passes_through_few_modules(
    walks: dict[str, set[str]], request_name: str, ceiling: int
) -> None:
    """Whoever changes what a request does has to know the modules that it passes through."""
    assert len(walks[request_name]) <= ceiling, sorted(walks[request_name])
