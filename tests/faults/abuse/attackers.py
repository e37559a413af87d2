"""Programs that abuse a server, one process each: a stranger, a key of another project, and a function of it.

    python -m tests.faults.abuse.attackers KIND URL SECONDS [KEY TOKEN PROJECT TARGET]

Each goes on for so many seconds, whatever it is answered, and prints how often which status came back as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import random
import socket
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any
from urllib.parse import urlsplit

import httpx

MIB = 1024 * 1024
Attack = Callable[["Attacker"], Awaitable[None]]


class Attacker:
    """What the attacks share: where they go, how long, and what they were answered."""

    def __init__(self, url: str, seconds: float, key: str, token: str, project: str, target: str) -> None:
        self.url, self.key, self.token, self.project, self.target = url, key, token, project, target
        self.end = time.monotonic() + seconds
        self.answers: Counter[str] = Counter()
        place = urlsplit(url)
        assert place.hostname == "127.0.0.1", "only this machine may be attacked"
        self.host, self.port = place.hostname, place.port or 80
        self.client = httpx.AsyncClient(base_url=url, timeout=30, limits=httpx.Limits(max_connections=32))

    @property
    def goes_on(self) -> bool:
        """Whether to attack once more: until the time is over, and until there was an answer."""
        return time.monotonic() < self.end or not self.answers

    def api(self, path: str) -> str:
        return f"/api/projects/{self.project}/{path}"

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response | None:
        try:
            response = await self.client.request(method, path, **options)
        except httpx.HTTPError as error:
            self.answers[type(error).__name__] += 1
            await asyncio.sleep(0.02)
            return None
        self.answers[str(response.status_code)] += 1
        return response

    async def authorized(self, method: str, path: str, **options: Any) -> httpx.Response | None:
        return await self.send(method, path, headers={"Authorization": f"Bearer {self.key}"}, **options)

    async def raw(self, data: bytes, *, hold_s: float, trickle: bytes = b"", reads_s: float = 0.0) -> None:
        """Send bytes over a connection of its own and keep it open.

        Each second ``trickle`` is sent. ``reads_s``: how often a few bytes of the answer are read, 0 for once.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + min(hold_s, max(0.1, self.end - time.monotonic()))
        connection = socket.socket()
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            async with asyncio.timeout_at(until):
                await loop.sock_connect(connection, (self.host, self.port))
                sending = asyncio.create_task(_send_slowly(loop, connection, data, trickle))
                try:
                    answer = await loop.sock_recv(connection, 64)
                    self.answers[answer[9:12].decode("latin-1") or "closed"] += 1
                    while answer and reads_s:
                        await asyncio.sleep(reads_s)
                        answer = await loop.sock_recv(connection, 64)
                finally:
                    sending.cancel()
        except TimeoutError:
            self.answers["held"] += 1
        except OSError as error:
            self.answers[type(error).__name__] += 1
        finally:
            connection.close()


async def _send_slowly(
    loop: asyncio.AbstractEventLoop, connection: socket.socket, data: bytes, trickle: bytes
) -> None:
    """Send ``data``, and then ``trickle`` each second, until the other side has gone."""
    with contextlib.suppress(OSError):
        await loop.sock_sendall(connection, data)
        while trickle:
            await asyncio.sleep(1)
            await loop.sock_sendall(connection, trickle)


def head(path: str, length: int, *headers: str) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: x",
        f"Content-Length: {length}",
        "Content-Type: application/json",
    ]
    return "\r\n".join([*lines, *headers, "", ""]).encode()


# -- a stranger: no key, no token --------------------------------------------------------------------------------------


async def large_bodies(self: Attacker) -> None:
    body = b"[" + b"0," * (9 * MIB) + b"0]"
    while self.goes_on:
        await self.send(
            "POST", self.api("experiments/"), content=body, headers={"Content-Type": "application/json"}
        )


async def unfinished_bodies(self: Attacker) -> None:
    part = b"{" + b" " * MIB
    while self.goes_on:
        for path in ("/batch/", "/flags/", self.api("query/")):
            await asyncio.gather(*(self.raw(head(path, 18 * MIB) + part * 8, hold_s=5) for _ in range(6)))


async def slow_headers(self: Attacker) -> None:
    while self.goes_on:
        await asyncio.gather(*(self.raw(b"GET / HTTP/1.1\r\nX-A: ", hold_s=5) for _ in range(40)))


async def unread_lists(self: Attacker) -> None:
    """Ask for a long list over many connections, and read next to nothing of it."""
    groups = [{"properties": [], "rollout_percentage": 1, "description": "x" * 400_000}]
    for number in range(10):
        flag = {"key": f"long-{number}", "filters": {"groups": groups}}
        await self.authorized("POST", self.api("feature_flags/"), json=flag)
    path = self.api("feature_flags/?limit=100")
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.key}\r\n\r\n".encode()
    while self.goes_on:
        await asyncio.gather(*(self.raw(head, hold_s=20, reads_s=5) for _ in range(150)))


async def unread_events(self: Attacker) -> None:
    """Follow live events without reading them, while large ones come."""
    path = self.api("events/live/")
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.key}\r\n\r\n".encode()
    batch = [{"event": "e", "distinct_id": "d", "properties": {"t": "x" * 500_000}}] * 5

    async def send() -> None:
        while self.goes_on:
            await self.send("POST", "/batch/", json={"api_key": self.token, "batch": batch})
            await asyncio.sleep(0.5)

    async def follow() -> None:
        while self.goes_on:
            await asyncio.gather(*(self.raw(head, hold_s=20, reads_s=5) for _ in range(40)))

    await asyncio.gather(send(), follow())


async def trickled_chunks(self: Attacker) -> None:
    """Send bodies in chunks of a byte each, a second apart, and pipelines whose answers nobody reads."""
    chunked = b"POST /batch/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    pipeline = b"GET /api/schema/ HTTP/1.1\r\nHost: x\r\n\r\n" * 200
    while self.goes_on:
        await asyncio.gather(
            *(self.raw(chunked, hold_s=10, trickle=b"1\r\n \r\n") for _ in range(60)),
            *(self.raw(pipeline, hold_s=10, reads_s=10) for _ in range(60)),
        )


async def bombs(self: Attacker) -> None:
    bomb = gzip.compress(b"[" + b"{}," * (30 * MIB) + b"{}]", 9)
    for path in cycle(("/batch/", "/e/", "/i/v1/analytics/events/", "/flags/", "/capture/")):
        if not self.goes_on:
            return
        await self.send("POST", path, content=bomb, headers={"Content-Encoding": "gzip"})


async def made_up_tokens(self: Attacker) -> None:
    while self.goes_on:
        token = f"phc_{random.getrandbits(200):x}"
        await self.send("POST", "/flags/?v=2", json={"token": token, "distinct_id": token})
        key = f"phx_{random.getrandbits(200):x}"
        await self.send("GET", self.api("experiments/"), headers={"Authorization": f"Bearer {key}"})


# -- a key of another project ------------------------------------------------------------------------------------------


def nested(form: str, depth: int) -> str:
    """The form put into itself; where it has two places, into the first, or the text would double each time."""
    text = "toFloat(properties.a)"
    for _ in range(depth):
        text = form.replace("@", text, 1).replace("@", "1")
    return text


FORMS = (
    "least(@, 1)",
    "greatest(2, @)",
    "if(@ > 1, 1, 2)",
    "if(1 > 2, @, @)",
    "1 / (1 + @)",
    "ifNull(@, 0)",
    "abs(@) - 1",
    "not(@ = 1) = (1 = 1)",
    "coalesce(@, least(1, 2))",
)


def expressions() -> Iterator[str]:
    for depth in cycle((5, 13, 20, 30, 60, 150)):
        for form in FORMS:
            yield nested(form, depth)


def metric(expression: str) -> dict[str, Any]:
    source = {"kind": "EventsNode", "event": "e", "math": "hogql", "math_hogql": expression}
    return {"kind": "ExperimentMetric", "metric_type": "mean", "source": source}


async def hostile_metrics(self: Attacker) -> None:
    made = await self.authorized(
        "POST",
        self.api("experiments/"),
        json={"name": "x", "feature_flag_key": f"x-{random.getrandbits(40)}", "start_date": "2026-01-01"},
    )
    assert made is not None
    assert made.status_code == httpx.codes.CREATED, made.text
    experiment = made.json()["id"]
    for expression in expressions():
        if not self.goes_on:
            return
        query = {"kind": "ExperimentQuery", "experiment_id": experiment, "metric": metric(expression)}
        await self.authorized("POST", self.api("query/"), json={"query": query, "refresh": "force_blocking"})
        await self.authorized(
            "PATCH", self.api(f"experiments/{experiment}/"), json={"metrics": [metric(expression)] * 5}
        )


async def large_bodies_with_a_key(self: Attacker) -> None:
    bodies = (
        b'{"query": [' + b"{}," * (6 * MIB) + b"{}]}",
        b'{"name": "' + b"x" * (18 * MIB) + b'"}',
        b"[" * 1_000_000,
    )
    for body in cycle(bodies):
        if not self.goes_on:
            return
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        await self.send("POST", self.api("experiments/"), content=body, headers=headers)


async def many_parts(self: Attacker) -> None:
    part = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
    body = part * 200_000 + b"--b--\r\n"
    while self.goes_on:
        await self.send(
            "POST",
            self.api("experiments/"),
            content=body,
            headers={
                "Authorization": f"Bearer {self.key}",
                "Content-Type": "multipart/form-data; boundary=b",
            },
        )


# -- functions of another project --------------------------------------------------------------------------------------

LONG = "arrayExists(a -> arrayExists(b -> a + b = 0.5, range(1500)), range(1500))"
"""It ends within its limits, if only just."""

PROGRAMS: tuple[dict[str, Any], ...] = (
    {"hog": "while (true) { let a := 1 }"},
    {"hog": "fetch('@', {'body': {'uuid': event.uuid}})"},
    {"hog": "let a := 'x' while (true) { a := concat(a, a) }"},
    {
        "hog": "print(1)",
        "filters": {
            "properties": [
                {
                    "type": "hogql",
                    "key": "arrayExists(a -> trim(concat(properties.t, toString(a))) = 'x', range(99999))",
                }
            ]
        },
    },
    {
        "hog": "print(1)",
        "inputs_schema": [{"key": "a", "type": "string"}],
        "inputs": {
            "a": {"value": "{arrayMap(a -> trim(properties.t), range(99999))}".replace("prop", "event.prop")}
        },
    },
    {
        "hog": "print(1)",
        "inputs_schema": [{"key": "a", "type": "string"}],
        "inputs": {
            "a": {
                "value": "{% for i in (1..99999999) %}{{ event.properties.t | upcase | reverse }}{% endfor %}",
                "templating": "liquid",
            }
        },
    },
    {
        "hog": "sleep(0)",
        "inputs_schema": [{"key": "a", "type": "string"}],
        "inputs": {"a": {"value": f"{{{LONG}}}"}},
    },
    {"hog": "print(1)", "x_delivery": {"order_key": f"{{{LONG}}}"}},
    {"hog": "print(1)", "masking": {"ttl": 60, "threshold": 1, "hash": f"{{{LONG}}}"}},
    {
        "hog": "print(1)",
        "inputs_schema": [{"key": "a", "type": "string"}],
        "inputs": {"a": {"value": f"{{{LONG}}}"}},
        "x_delivery": {"batch": {"max_events": 100, "max_wait_ms": 100}},
    },
    {"hog": "return event", "type": "transformation"},
    {"hog": "while (true) { let a := 1 }", "type": "transformation"},
    {
        "hog": "let a := 'x' while (length(a) < 9999999) { a := concat(a, a) } return event",
        "type": "transformation",
    },
)
IS_LONG = "HOGLAB_TEST_ABUSE_S" in os.environ
EVENTS_AT_ONCE, PAUSE_S = (20, 0.2) if IS_LONG else (5, 0.25)
"""Up to 20 MB a second, a flood beside the functions; in short attacks 4, of which each one hurts."""


async def hostile_functions(self: Attacker) -> None:
    for number, program in enumerate(PROGRAMS):
        body = json.loads(json.dumps(program).replace("@", self.target))
        await self.authorized(
            "POST",
            self.api("hog_functions/"),
            json={"type": "destination", "name": f"f{number}", "enabled": True, **body},
        )
    text = " " * 200_000
    while self.goes_on:
        events = [
            {"event": "e", "distinct_id": f"d{n}", "properties": {"t": text, "a": n}}
            for n in range(EVENTS_AT_ONCE)
        ]
        await self.send("POST", "/batch/", json={"api_key": self.token, "batch": events})
        await asyncio.sleep(PAUSE_S)


KINDS: dict[str, tuple[Attack, ...]] = {
    "stranger": (
        large_bodies,
        large_bodies,
        unfinished_bodies,
        slow_headers,
        trickled_chunks,
        bombs,
        made_up_tokens,
    ),
    "key": (*[hostile_metrics] * 6, large_bodies_with_a_key, many_parts, unread_lists, unread_events),
    "function": (hostile_functions,),
}


async def _attack(attacks: Sequence[Attack], url: str, seconds: str, *rest: str) -> None:
    attacker = Attacker(url, float(seconds), *rest)
    await asyncio.gather(*(attack(attacker) for attack in attacks))
    await attacker.client.aclose()
    print(json.dumps(attacker.answers))


def main(kinds: Mapping[str, Sequence[Attack]]) -> None:
    """Attack as the arguments of the command say: a kind, the address, the seconds, and what an attacker knows."""
    os.nice(19)  # who attacks from elsewhere takes nothing of this machine's time
    kind, *rest = sys.argv[1:]
    asyncio.run(_attack(kinds[kind], *rest))


if __name__ == "__main__":
    main(KINDS)
