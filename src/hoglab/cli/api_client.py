"""The API of a running server, for commands."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit

from hoglab.cli.errors import OperatorError

TIMEOUT_S = 120.0


class RequestRefusedError(OperatorError):
    """Error for a request that a server refused; ``reason`` is its own."""

    def __init__(self, host: str, status: int, reason: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(f"{host} answered {status}: {reason}")


class ApiClient:
    """One project of one server. What the server refuses is a `RequestRefusedError`."""

    def __init__(self, host: str, key: str, project: int, *, timeout_s: float = TIMEOUT_S) -> None:
        address = urlsplit(host if "://" in host else f"http://{host}")
        if address.scheme not in ("http", "https") or not address.hostname:
            raise OperatorError(f"{host} is not the address of a server (http://127.0.0.1:8000)")
        self.host = host
        self._make = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        self._netloc = address.netloc
        self._timeout_s = timeout_s
        self._base = f"{address.path.rstrip('/')}/api/projects/{project}"
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def get(self, path: str, **query: Any) -> Any:
        """Return the decoded answer; parameters that are None are left out."""
        with self._request("GET", path + _query(query), timeout_s=self._timeout_s) as answer:
            return _decoded(answer)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a POST request. Return the decoded answer. Fields that are None are left out."""
        sent = {name: value for name, value in body.items() if value is not None}
        with self._request("POST", path, json.dumps(sent), timeout_s=self._timeout_s) as answer:
            return _decoded(answer)

    def pages(self, path: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield every item of a list, page by page."""
        offset = 0
        while True:
            page = self.get(path, offset=offset or None, **query)
            yield from page["results"]
            if not page["next"] or not page["results"]:
                return
            offset += len(page["results"])

    def events(self, path: str, **query: Any) -> Iterator[tuple[str, Any]]:
        """Return server-sent events from now on, until the server hangs up: their names and data."""
        with ExitStack() as resources:
            request = self._request("GET", path + _query(query), timeout_s=None)
            answer = resources.enter_context(request)
            return _events(answer, resources.pop_all())

    @contextmanager
    def _request(
        self, method: str, path: str, body: str | None = None, *, timeout_s: float | None
    ) -> Iterator[http.client.HTTPResponse]:
        connection = self._make(self._netloc, timeout=timeout_s)
        try:
            connection.request(method, self._base + path, body, self._headers)
            answer = connection.getresponse()
            if answer.status >= http.client.BAD_REQUEST:
                raise RequestRefusedError(self.host, answer.status, _reason(answer.read()))
            yield answer
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise OperatorError(
                f"{self.host} cannot be reached: {reason}; give its address with --host"
            ) from error
        finally:
            connection.close()


def _events(answer: http.client.HTTPResponse, resources: ExitStack) -> Iterator[tuple[str, Any]]:
    name, data = "message", ""
    with resources:
        for raw in answer:
            field, _, value = raw.decode().rstrip("\r\n").partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                data = value
            elif not field and data:
                yield name, json.loads(data)
                name, data = "message", ""


def _query(values: Mapping[str, Any]) -> str:
    given = {name: value for name, value in values.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def _decoded(answer: http.client.HTTPResponse) -> Any:
    try:
        return json.loads(answer.read())
    except ValueError as error:
        raise OperatorError("the answer is not that of a hoglab server") from error


def _reason(body: bytes) -> str:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        for name in ("detail", "error"):
            if isinstance(answer.get(name), str):
                attr = answer.get("attr")
                return f"{attr}: {answer[name]}" if attr else answer[name]
    return body.decode(errors="replace").strip().partition("\n")[0][:200]
