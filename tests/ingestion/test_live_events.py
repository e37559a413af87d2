"""Events as they are stored: everybody's own, in order, bounded, without gaps, and nothing while nobody follows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from tests.conftest import free_port
from tests.embedded import EmbeddedEventStore
from tests.forked import ForkedServer
from tests.http.asgi import ask
from tests.waiting import PATIENCE_S

from hoglab.app import Hoglab
from hoglab.demo.server import ChildServer
from hoglab.ingestion.live_events import LiveEvents, LiveQuery
from hoglab.settings import Settings

LIVE = "/api/projects/1/events/live/"
Told = tuple[str, int | None, Any]


class Server:
    def __init__(self, server: ChildServer) -> None:
        self.token = server.project_token
        self.key = server.api_key
        headers = {"Authorization": f"Bearer {server.api_key}"}
        self.client = httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE_S)

    def send(self, *events: dict[str, Any]) -> None:
        batch = [{"distinct_id": "d", "properties": {}, **event} for event in events]
        answer = self.client.post("/batch/", json={"api_key": self.token, "batch": batch})
        assert answer.status_code == 200, answer.text

    @contextmanager
    def follow(self, last_id: int | None = None, **query: str) -> Iterator[Iterator[Told]]:
        headers = {} if last_id is None else {"Last-Event-ID": str(last_id)}
        with self.client.stream("GET", LIVE, params=query, headers=headers) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield told(answer.iter_lines())


def told(lines: Iterator[str]) -> Iterator[Told]:
    kind, number, data = "", None, None
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "id":
            number = int(value)
        elif name == "data":
            data = json.loads(value)
        elif not line and data is not None:
            yield kind, number, data
            kind, number, data = "", None, None


def until(stream: Iterator[Told], enough: Callable[[list[Told]], bool]) -> list[Told]:
    found: list[Told] = []
    while not enough(found):
        found.append(next(stream))
    return found


def names(found: list[Told]) -> list[str]:
    return [data["event"] for kind, _, data in found if kind == "event"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("live") / "data"
    child = ForkedServer(
        data=data, host="127.0.0.1", port=free_port(), environment={"HOGLAB_ACCESS_LOG": "false"}
    )
    try:
        child.start()
        yield Server(child)
    finally:
        child.close()


def test_events_come_as_they_are_listed_with_their_rate(server: Server) -> None:
    with server.follow() as stream:
        next(stream)  # a rate: the stream is open
        server.send({"event": "a", "properties": {"x": 1}}, {"event": "b"})
        found = until(stream, lambda found: len(names(found)) == 2 and found[-1][0] == "rate")
    assert names(found) == ["a", "b"]
    listed = {each["event"]: each for each in server.client.get("/api/projects/1/events/").json()["results"]}
    events = [(number, data) for kind, number, data in found if kind == "event"]
    assert [data for _, data in events] == [listed["a"], listed["b"]]
    assert events[0][0] < events[1][0]
    rates = [data for kind, _, data in found if kind == "rate"]
    assert max(rate["received_per_s"] for rate in rates) in (1, 2)
    assert rates[-1]["last_event_at"] == listed["b"]["created_at"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"event": "a,b"}, ["a", "b", "a"]),
        ({"distinct_id": "other"}, ["a"]),
        (
            {"properties": '[{"key": "plan", "value": ["pro"], "operator": "exact", "type": "event"}]'},
            ["b", "c"],
        ),
    ],
    ids=["event", "distinct_id", "properties"],
)
def test_only_what_is_wanted_comes(server: Server, query: dict[str, str], expected: list[str]) -> None:
    with server.follow(**query) as stream:
        next(stream)
        server.send(
            {"event": "a"},
            {"event": "b", "properties": {"plan": "pro"}},
            {"event": "c", "properties": {"plan": "pro"}},
            {"event": "a", "distinct_id": "other"},
        )
        found = until(stream, lambda found: len(names(found)) >= len(expected) and found[-1][0] == "rate")
    assert names(found) == expected


def test_bad_queries_are_refused(server: Server) -> None:
    for query in ({"properties": "x"}, {"event": ",".join(map(str, range(21)))}):
        assert server.client.get(LIVE, params=query).status_code == 400
    assert httpx.get(f"{server.client.base_url}{LIVE}").status_code == 401


def test_what_comes_too_fast_is_counted(server: Server) -> None:
    with server.follow() as stream:
        next(stream)
        server.send(*({"event": f"e{number}"} for number in range(1000)))
        found: list[Told] = []

        def all_told(_: list[Told]) -> bool:
            left_out = sum(data["count"] for kind, _, data in found if kind == "skipped")
            return left_out + len(names(found)) == 1000

        while not all_told(found):
            found.append(next(stream))
    assert 25 <= len(names(found)) <= 500  # 25 of each look; how many looks there were depends on the machine
    assert names(found)[-1] == "e999"


def test_large_events_that_come_too_fast_are_counted(server: Server) -> None:
    """However large a project's events are, a look at them reads little into memory."""
    text = "x" * 500_000
    with server.follow() as stream:
        next(stream)
        server.send(*({"event": f"e{number}", "properties": {"text": text}} for number in range(20)))
        found = until(
            stream,
            lambda found: (
                len(names(found)) + sum(data["count"] for kind, _, data in found if kind == "skipped") == 20
            ),
        )
    assert names(found)[-1] == "e19"
    assert len(names(found)) < 20


def test_a_broken_connection_is_resumed_without_gap_or_double(server: Server) -> None:
    with server.follow() as stream:
        next(stream)
        server.send({"event": "a"}, {"event": "b"}, {"event": "c"})
        found = until(stream, lambda found: len(names(found)) == 3)
    first = next(number for kind, number, data in found if kind == "event" and data["event"] == "a")
    with server.follow(last_id=first) as stream:
        next(stream)
        server.send({"event": "d"})
        again = until(stream, lambda found: "d" in names(found))
    assert [name for name in names(again) if name != "b"] == ["c", "d"]  # b may have come first


def test_why_events_were_ignored_is_told(server: Server) -> None:
    with server.follow() as stream:
        next(stream)
        server.send({"event": "$create_alias", "properties": {"alias": "undefined"}})
        found = until(stream, lambda found: any(kind == "warning" for kind, _, _ in found))
    warning = next(data for kind, _, data in found if kind == "warning")
    assert warning == server.client.get("/api/projects/1/ingestion_warnings/").json()["results"][0]


async def soon(condition: Callable[[], bool]) -> None:
    for _ in range(3_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that")


@pytest.mark.parametrize("busy", [False, True])
def test_who_may_no_longer_follow_is_sent_away(server: Server, *, busy: bool) -> None:
    """A revoked key and an ended session, whether events come or not."""
    made = server.client.post(
        "/api/personal_api_keys/", json={"label": "follower", "scopes": ["query:read"]}
    ).json()
    url = str(server.client.base_url)
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as browser:
        session = browser.post("/api/session/", json={"personal_api_key": server.key}).json()
        end_session = f"/api/sessions/{session['id']}/"
        revoke = f"/api/personal_api_keys/{made['id']}/"
        by_key = {"Authorization": f"Bearer {made['value']}"}
        for follower, headers, ended in ((httpx, by_key, revoke), (browser, {}, end_session)):
            with follower.stream("GET", url + LIVE, headers=headers, timeout=PATIENCE_S) as answer:
                assert answer.status_code == 200
                lines = answer.iter_lines()
                next(lines)
                assert server.client.delete(ended).status_code == 204
                for line in lines:  # until it ends
                    if busy and line.startswith("event: rate"):
                        server.send({"event": "still"})
            refused = follower.get(url + "/api/projects/1/", headers=headers)
            assert refused.status_code == 401


def test_nothing_is_read_while_nobody_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hoglab = Hoglab.open(Settings(data=tmp_path / "data", access_log=False))
    reads = []
    reader = EmbeddedEventStore.reader
    monkeypatch.setattr(EmbeddedEventStore, "reader", lambda store: reads.append(1) or reader(store))
    project = hoglab.accounts.projects()[0]

    async def go() -> None:
        live = LiveEvents(
            hoglab.engines.store, hoglab.engines.database, ["event"], lambda _p, _r: [], poll_s=0.01
        )
        assert not live.is_reading
        followers = [live.follow(LiveQuery(project)) for _ in range(20)]
        coming = [asyncio.ensure_future(anext(each)) for each in followers]
        await soon(lambda: len(reads) >= 20)
        assert live.is_reading
        for task in coming:
            task.cancel()
        await asyncio.wait(coming)
        for each in followers:
            await each.aclose()
        await soon(lambda: not live.is_reading)
        count = len(reads)
        await asyncio.sleep(0.1)
        assert len(reads) == count

    try:
        asyncio.run(go())
    finally:
        hoglab.stop()


def test_a_query_that_fails_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    hoglab = Hoglab.open(Settings(data=tmp_path / "data", access_log=False))
    hoglab.start()
    project, made = hoglab.accounts.projects()[0], hoglab.first_start
    assert made is not None

    def show(_project: Any, rows: Any) -> list[Any]:
        return [row[0] for row in rows]

    async def go() -> Any:
        live = LiveEvents(hoglab.engines.store, hoglab.engines.database, ["event"], show, poll_s=0.01)
        bad, good = (
            live.follow(LiveQuery(project, condition)) for condition in ("error('x') IS NULL", "TRUE")
        )
        coming = [asyncio.ensure_future(anext(each)) for each in (bad, good)]
        await asyncio.sleep(0.1)
        event = {"api_key": made.project_token, "event": "e", "distinct_id": "d"}
        headers = [(b"content-type", b"application/json")]
        assert (
            await ask(hoglab.http, "POST", "/capture/", headers, body=[orjson.dumps(event)])
        ).status == 200
        told = await asyncio.wait_for(coming[1], PATIENCE_S)
        while told.type != "event":
            told = await asyncio.wait_for(anext(good), PATIENCE_S)
        coming[0].cancel()
        await asyncio.wait(coming)
        for each in (bad, good):
            await each.aclose()
        return told.data

    try:
        assert asyncio.run(go()) == "e"
    finally:
        hoglab.stop()
