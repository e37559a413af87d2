"""A project of its own on a running server, and the API's view of it: what the store holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
from posthog import Posthog
from tests.waiting import PATIENCE_S

from hoglab.demo.server import ChildServer

VARIANTS = {
    "variants": [
        {"key": "control", "rollout_percentage": 50},
        {"key": "test", "rollout_percentage": 50},
    ]
}
"""Two variants, half each."""


def person(key: str, value: Any, operator: str = "exact") -> dict[str, Any]:
    """A filter on a person property."""
    return {"key": key, "type": "person", "value": value, "operator": operator}


def everyone(*properties: dict[str, Any]) -> list[dict[str, Any]]:
    """One condition set: all for whom these properties hold."""
    return [{"properties": list(properties), "rollout_percentage": 100}]


class Project:
    """Python SDK clients made with `sdk` are shut down by `close`."""

    def __init__(self, server: ChildServer) -> None:
        self.server = server
        self.clients: list[Posthog] = []
        headers = {"Authorization": f"Bearer {server.api_key}"}
        made = httpx.post(
            f"{server.url}/api/organizations/@current/projects/", json={"name": "Mine"}, headers=headers
        ).json()
        self.token = made["api_token"]
        self.id: int = made["id"]
        self._http = httpx.Client(base_url=f"{server.url}/api/projects/{self.id}", headers=headers)

    def sdk(self, **options: Any) -> Posthog:
        patient = {"timeout": PATIENCE_S, "feature_flags_request_timeout_seconds": PATIENCE_S}
        client = Posthog(self.token, host=self.server.url, **(patient | options))
        self.clients.append(client)
        return client

    def close(self) -> None:
        for client in self.clients:
            client.shutdown()
        self._http.close()

    def get(self, path: str, **query: Any) -> Any:
        answer = self._http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any) -> Any:
        answer = self._http.post(path, json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def ask(self, body: Any) -> Any:
        """The answer to a query."""
        answer = self._http.post("/query/", json=body, timeout=PATIENCE_S)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def flag(self, key: str, *, groups: list[dict[str, Any]] | None = None, **filters: Any) -> dict[str, Any]:
        """Make a flag, for everyone unless ``groups`` says otherwise."""
        made: dict[str, Any] = self.post(
            "/feature_flags/", {"key": key, "filters": {"groups": groups or everyone(), **filters}}
        )
        return made

    def change(self, flag: dict[str, Any], **fields: Any) -> None:
        """PATCH a flag."""
        answer = self._http.patch(f"/feature_flags/{flag['id']}/", json=fields)
        assert answer.status_code == 200, answer.text

    def events(self, count: int, **query: Any) -> list[dict[str, Any]]:
        """The stored events, newest first, once there are ``count``."""
        return self.until(lambda: self.get("/events/", limit=1000, **query)["results"], count)

    def person(self, distinct_id: str) -> dict[str, Any] | None:
        """The person behind a distinct id."""
        found = self.get("/persons/", distinct_id=distinct_id)["results"]
        return found[0] if found else None

    def until(self, find: Callable[[], list[Any]], count: int) -> list[Any]:
        """What ``find`` finds, once that is ``count``; more is a failure too."""
        found: list[Any] = []

        def enough() -> bool:
            found[:] = find()
            return len(found) >= count

        self.wait(enough)
        assert len(found) == count, found
        return found

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until this holds, a bounded time: what is expected then is for the caller to assert."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.05)
