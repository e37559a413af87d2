"""posthog-node in a process of its own, for tests in Python."""

from __future__ import annotations

from typing import Any

from tests.clients.node_process import NodeProcess
from tests.clients.project import Project
from tests.waiting import PATIENCE_S

PATIENT = dict.fromkeys(("featureFlagsRequestTimeoutMs", "requestTimeout"), int(PATIENCE_S * 1000))
"""Options by which the SDK waits for a busy machine; by default it takes a flag for unknown after 3 seconds."""


class NodeClient:
    """A client of posthog-node: methods of the SDK by name, and what the SDK believes."""

    def __init__(self, node: NodeProcess, project: Project, url: str | None = None, **options: Any) -> None:
        options = {"host": url or project.server.url, "flushInterval": 100, **PATIENT, **options}
        self._node = node
        self._id = node("open", token=project.token, options=options)

    def call(self, method: str, *arguments: Any) -> Any:
        return self.each(method, [list(arguments)])[0]

    def each(self, method: str, calls: list[list[Any]]) -> list[Any]:
        """One call after the other."""
        return self._node("call", client=self._id, method=method, calls=calls)

    def together(self, method: str, calls: list[list[Any]]) -> list[Any]:
        """All calls at once."""
        return self._node("together", client=self._id, method=method, calls=calls)

    def shut_down(self, method: str = "shutdown") -> list[dict[str, Any]]:
        """Flush and end; the events that the SDK believes to have been taken. Fails on errors it reported."""
        self.call(method)
        state = self.state()
        assert state["errors"] == []
        assert state["queued"] == 0
        return state["sent"]

    def state(self) -> dict[str, Any]:
        return self._node("state", client=self._id)
