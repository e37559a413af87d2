"""A page in the browser on which one of PostHog's browser SDKs runs."""

from __future__ import annotations

from typing import Any

from tests.clients.node_process import NodeProcess
from tests.waiting import PATIENCE_S

START_POSTHOG_JS = """
async ({token, options}) => {
  window.posthog = (await import("posthog-js")).default
  window.captured = []
  posthog.init(token, {
    ...options,
    loaded: () => posthog.on("eventCaptured", (event) => captured.push(event)),
  })
}
"""
"""``init`` as in an application; what the SDK says to have captured is noted from the start."""

FLAGS = "() => new Promise((done) => posthog.onFeatureFlags((keys, values) => done(values)))"


class Tab:
    """One page. Functions are JavaScript text; their one argument and their answers are JSON."""

    def __init__(self, browser: NodeProcess, url: str, *, like: Tab | None = None, **options: Any) -> None:
        self._browser = browser
        if like is not None:
            options["like"] = like._id
        self._id = browser("open", url=url, **options)

    def run(self, code: str, argument: Any = None) -> Any:
        """Call a function in the page and wait for the promise it may return."""
        return self._browser("run", page=self._id, code=code, argument=argument)

    def wait(self, code: str, argument: Any = None) -> Any:
        """The first answer of a function that is true."""
        return self._browser("wait", page=self._id, code=code, argument=argument)

    def start(self, token: str, host: str, **options: Any) -> None:
        """Start posthog-js on the page, quick to send and without the products that are not here."""
        defaults = {
            "api_host": host,
            "disable_surveys": True,
            "feature_flag_request_timeout_ms": int(PATIENCE_S * 1000),
            "request_queue_config": {"flush_interval_ms": 250},
        }
        self.run(START_POSTHOG_JS, {"token": token, "options": defaults | options})

    def flags(self) -> dict[str, Any]:
        """Values of all flags that are on, once the SDK has them."""
        found: dict[str, Any] = self.run(FLAGS)
        return found

    def captured(self) -> list[dict[str, Any]]:
        """The events that posthog-js says to have captured on this page."""
        found: list[dict[str, Any]] = self.run("() => captured")
        return found

    def go(self, url: str) -> None:
        self._browser("go", page=self._id, url=url)

    def leave(self) -> None:
        """Unload the page."""
        self.go("about:blank")

    def click(self, selector: str) -> None:
        self._browser("click", page=self._id, selector=selector)

    def fill(self, selector: str, text: str) -> None:
        """Type a text into a field, in place of what is there."""
        self._browser("fill", page=self._id, selector=selector, text=text)

    def errors(self) -> list[str]:
        """What the browser complained of: failed scripts, CORS, exceptions."""
        found: list[str] = self._browser("seen", page=self._id)["errors"]
        return found

    def requests(self, part: str) -> list[dict[str, Any]]:
        """Requests with ``part`` in their address: method, url, kind, headers, status (0: failed)."""
        return [each for each in self._browser("seen", page=self._id)["requests"] if part in each["url"]]
