"""A screen of the UI in a real browser, found by what people see of it."""

from __future__ import annotations

import time
from typing import Any

from tests.clients.node_process import NodeProcess
from tests.clients.tab import Tab
from tests.waiting import PATIENCE_S

LOG_IN = """
async (key) => {
  const answer = await fetch("/api/session/", {
    method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({personal_api_key: key}),
  })
  return answer.status
}
"""
WIDTHS = {"light": 1280, "dark": 1280, "narrow": 320, "zoomed": 640}
"""``zoomed``: what a window of 1280 pixels has for a text of twice the size."""


class Page(Tab):
    """One page below ``/ui``."""

    def __init__(self, browser: NodeProcess, site: str, path: str = "", **options: Any) -> None:
        self.site = site
        self._seen = (0, 0, 0)
        super().__init__(browser, f"{site}/ui{path}", **options)

    def log_in(self, key: str) -> None:
        """Open a session for the page's profile, as the page to log in does."""
        assert self.run(LOG_IN, key) == 201

    def show(self, path: str, text: str) -> None:
        """Go to an address below ``/ui`` and wait until a text is there."""
        self.go(f"{self.site}/ui{path}")
        self.see(text)

    def until(self, code: str, argument: Any = None) -> Any:
        """The first true answer of a function; asked from outside, as the policy lets no page evaluate text."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := self._asked(code, argument)):
            assert time.monotonic() < deadline, f"{code} {argument}: {self.text()[:3000]}"
            time.sleep(0.05)
        return found

    def _asked(self, code: str, argument: Any) -> Any:
        """The answer of a function; None while the page is being left for another."""
        try:
            return self.run(code, argument)
        except AssertionError as error:
            if "context was destroyed" not in str(error):
                raise
            return None

    def see(self, text: str) -> None:
        """Wait until a text is on the page."""
        self.until("(text) => document.body.innerText.includes(text)", text)

    def gone(self, text: str) -> None:
        self.until("(text) => !document.body.innerText.includes(text)", text)

    def text(self) -> str:
        found: str = self.run("() => document.body.innerText")
        return found

    def address(self) -> str:
        """What the address bar has behind the site."""
        found: str = self.run("() => location.pathname + location.search + location.hash")
        return found

    def tell(self, operation: str, **parameters: Any) -> Any:
        """Have the driver do something with the page."""
        return self._browser(operation, page=self._id, **parameters)

    def end(self) -> None:
        """Close the page, not its profile."""
        self.tell("end")

    def begin(self) -> None:
        """Forget what was asked for and complained of up to now."""
        seen = self.tell("seen")
        self._seen = (len(seen["errors"]), len(seen["requests"]), len(seen["warnings"]))

    def errors(self) -> list[str]:
        return super().errors()[self._seen[0] :]

    def warnings(self) -> list[str]:
        found: list[str] = self.tell("seen")["warnings"]
        return found[self._seen[2] :]

    def requests(self, part: str) -> list[dict[str, Any]]:
        return [each for each in super().requests("")[self._seen[1] :] if part in each["url"]]

    def asked(self, part: str, count: int) -> None:
        """Wait until a request has been answered so often, of which the page may know before we do; not more often."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self.requests(part)) < count:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert len(self.requests(part)) == count

    def complaints(self) -> list[str]:
        """Whatever the browser complained of, requests to other places, and requests that were refused."""
        requests = self.requests("")
        elsewhere = [
            each["url"] for each in requests if not each["url"].startswith((f"{self.site}/", "blob:"))
        ]
        refused = [f"{each['status']} {each['url']}" for each in requests if each["status"] >= 400]
        return [*self.errors(), *self.warnings(), *elsewhere, *refused]

    def press(self, key: str, selector: str | None = None) -> None:
        self.tell("press", key=key, selector=selector)

    def palette(self) -> None:
        """Open the palette. A page listens to keys once it was painted, a moment after its text is there."""
        deadline = time.monotonic() + PATIENCE_S
        while not self._asked("() => document.activeElement?.getAttribute('role') === 'combobox'", None):
            assert time.monotonic() < deadline, self.text()[:3000]
            self.press("Control+k")
            time.sleep(0.05)

    def button(self, name: str) -> None:
        """Press a button or a link by its name."""
        self.click(f'role=button[name="{name}"]')

    def look(self, how: str) -> None:
        """Light, dark or narrow."""
        scheme = "dark" if how == "dark" else "light"
        self.tell("look", colorScheme=scheme, width=WIDTHS[how], height=900)

    def axe(self, *rules: str) -> list[str]:
        """What axe-core finds, or some of its rules."""
        found: list[str] = self.tell("axe", rules=rules)
        return found

    def too_wide(self) -> bool:
        """Whether the page itself, not a table in it, scrolls sideways."""
        return bool(
            self.run("() => document.documentElement.scrollWidth > document.documentElement.clientWidth")
        )
