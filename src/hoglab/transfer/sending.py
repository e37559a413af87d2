"""Sending batches to the capture endpoint of a server, patiently."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import orjson

TIMEOUT_S = 60.0
PATIENCE_S = 300.0
"""Time for which a server may refuse everything before an import gives up."""

MAX_WAIT_S = 30.0

_BUSY = frozenset({408, 429, 500, 502, 503, 504})


class SendError(Exception):
    """The server takes nothing; the text is one line."""


class BatchRefusedError(Exception):
    """The server refuses this batch for what is in it."""


class Sender:
    """Sends to ``/batch/`` of one server, for one project. One request at a time, so that order is kept."""

    def __init__(self, host: str, token: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Raise `SendError` when ``host`` is no address."""
        address = urlsplit(host if "://" in host else f"http://{host}")
        if address.scheme not in ("http", "https") or not address.hostname:
            raise SendError(f"{host} is not the address of a server (http://127.0.0.1:8000)")
        self.host = host
        self._make = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        self._netloc = address.netloc
        self._path = address.path.rstrip("/") + "/batch/"
        self._head = b'{"api_key":%b,"historical_migration":true,"batch":[' % orjson.dumps(token)
        self._sleep = sleep
        self._connection: http.client.HTTPConnection | None = None
        self._reached = False  # one that was never there is a mistake, one that went away may come back

    def body(self, events: list[bytes]) -> bytes:
        """Return the body of a request with these events, each JSON text."""
        return b"".join((self._head, b",".join(events), b"]}"))

    def send(self, body: bytes) -> None:
        """Return when the server has made the events durable.

        Waits while it is busy, or away after it was there. Raises `BatchRefusedError` when it will never take these
        events, and `SendError` when it takes none at all, stays away too long or was never there.
        """
        gives_up_at = time.monotonic() + PATIENCE_S
        wait_s = 0.5
        while True:
            try:
                status, reason, retry_after = self._post(body)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                status, reason, retry_after = 0, str(error) or type(error).__name__, None
            if status:
                self._reached = True
            elif not self._reached:
                raise SendError(f"{self.host} cannot be reached: {reason}")
            if status == http.client.OK:
                return
            if status == http.client.UNAUTHORIZED:
                raise SendError(f"{self.host} does not know the project token: {reason}")
            if status in (http.client.BAD_REQUEST, http.client.REQUEST_ENTITY_TOO_LARGE):
                raise BatchRefusedError(reason)
            if status and status not in _BUSY:
                raise SendError(f"{self.host} answered {status}: {reason}")
            if time.monotonic() > gives_up_at:
                raise SendError(f"{self.host} has taken no events for {PATIENCE_S:.0f} s: {reason}")
            self._sleep(max(wait_s, retry_after or 0.0))
            wait_s = min(wait_s * 2, MAX_WAIT_S)

    def _post(self, body: bytes) -> tuple[int, str, float | None]:
        if self._connection is None:
            self._connection = self._make(self._netloc, timeout=TIMEOUT_S)
        self._connection.request("POST", self._path, body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read().decode(errors="replace").strip().partition("\n")[0][:200]
        retry_after = answer.getheader("Retry-After") or ""
        return answer.status, text, min(float(retry_after), MAX_WAIT_S) if retry_after.isdigit() else None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
