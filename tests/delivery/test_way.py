"""The way of an event from a request to a webhook, beside what docs/architecture.md says of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
from tests.delivery.conftest import Receiver
from tests.waiting import wait_for
from tests.ways import listed, tracing

from hoglab.app import Hoglab
from hoglab.settings import Settings

KEY, TOKEN = "phx_" + "k" * 43, "phc_" + "t" * 43


def test_an_event_runs_through_the_modules_that_the_document_lists(
    tmp_path: Path, receiver: Receiver
) -> None:
    """What runs beside it all the time is not told from it: others may have been called, too."""
    settings = Settings(
        data=tmp_path / "data",
        bootstrap_api_key=KEY,
        bootstrap_project_token=TOKEN,
        access_log=False,
        fetch_allow_cidrs=("127.0.0.0/8",),
    )
    with tracing() as trace, asyncio.Runner() as runner:
        server = Hoglab.open(settings)
        server.start()
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(server.http),
            base_url="http://hoglab.test",
            headers={"Authorization": f"Bearer {KEY}"},
        )

        def post(path: str, body: dict[str, Any]) -> None:
            runner.run(client.post(path, json=body)).raise_for_status()

        code = f"fetch('{receiver.url}', {{'body': event.event}})"
        filters = {"events": [{"id": "bought", "type": "events"}]}
        function = {"type": "destination", "name": "Hook", "enabled": True, "hog": code, "filters": filters}
        post("/api/projects/1/hog_functions/", function)
        trace.is_on = True
        event = {"event": "bought", "distinct_id": "ann", "properties": {}}
        post("/batch/", {"api_key": TOKEN, "batch": [event]})
        wait_for(lambda: "delivery/runs/results.py" in trace.modules)
        trace.is_on = False
        runner.run(client.aclose())
        server.stop()
    assert receiver.hits
    assert listed("1. An event, from the request to a webhook") - trace.modules == set()
