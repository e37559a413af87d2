"""Attacks that once stopped a server or slowed its other projects, each by itself and for a bounded time.

    python -m tests.faults.abuse.attacks NAME URL SECONDS KEY TOKEN PROJECT TARGET

Each prints how often which status came back as JSON, as `attackers` does. The key has all rights, in all projects.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Mapping
from itertools import count, cycle
from typing import Any

from tests.faults.abuse.attackers import (
    Attack,
    Attacker,
    bombs,
    hostile_functions,
    hostile_metrics,
    large_bodies_with_a_key,
    made_up_tokens,
    main,
    many_parts,
    slow_headers,
    trickled_chunks,
    unfinished_bodies,
    unread_events,
    unread_lists,
)

AT_ONCE = 6
"""Requests that an attack has under way at a time, where it says nothing else."""


async def side_by_side(work: Any, times: int = AT_ONCE) -> None:
    """Run several copies of a coroutine function."""
    await asyncio.gather(*(work() for _ in range(times)))


async def make_flag(self: Attacker, key: str, *properties: Mapping[str, Any]) -> None:
    groups = [{"properties": [{"type": "person", **each}], "rollout_percentage": 100} for each in properties]
    await self.authorized(
        "POST", self.api("feature_flags/"), json={"key": key, "active": True, "filters": {"groups": groups}}
    )


async def ask_flags(self: Attacker, **properties: str) -> None:
    body = {"token": self.token, "distinct_id": "u", "person_properties": properties}
    await self.send("POST", "/flags/?v=2", json=body)


async def long_numbers(self: Attacker) -> None:
    """Texts that look like a number or a date until their last character, against flags that compare."""
    age = {"key": "age", "operator": "gt", "value": "18"}
    born = {"key": "age", "operator": "is_date_after", "value": "2026-01-01"}
    version = {"key": "age", "operator": "semver_gte", "value": "1.2.3"}
    for number, condition in enumerate((age, born, version)):
        await make_flag(self, f"long-{number}", condition)
    texts = cycle(["9" * 500_000 + "x", "1." * 250_000 + "x", "2026-01-01T" + "0" * 500_000, "-" * 500_000])
    stored = {"event": "$set", "distinct_id": "u", "properties": {"$set": {"age": "9" * 25_000 + "x"}}}
    await self.send("POST", "/batch/", json={"api_key": self.token, "batch": [stored]})

    async def ask() -> None:
        while self.goes_on:
            await ask_flags(self, age=next(texts))

    await side_by_side(ask)


async def brackets(self: Attacker) -> None:
    """Selectors of elements that are all brackets or all steps, in questions about events and in actions."""
    units = ("[", "[a=", ">", ":nth-child(", '["', "a>", "[a=b]", ".a", "a ", ":nth-child(2)")
    texts = cycle(
        [(unit * 2_000)[:length] + end for unit in units for length, end in ((2_000, ""), (998, "a"))]
    )

    async def ask() -> None:
        while self.goes_on:
            selector = {"type": "element", "key": "selector", "operator": "exact", "value": next(texts)}
            series = [{"kind": "EventsNode", "event": "e", "properties": [selector]}]
            trends = {"kind": "TrendsQuery", "series": series}
            await self.authorized("POST", self.api("query/"), json={"query": trends})
            asked = {"properties": json.dumps([selector])}
            await self.authorized("GET", self.api("events/"), params=asked)
            steps = [{"event": "$autocapture", "selector": selector["value"]}]
            await self.authorized("POST", self.api("actions/"), json={"name": "a", "steps": steps})

    await side_by_side(ask)


async def costly_patterns(self: Attacker) -> None:
    """Regular expressions that take memory, time, or the engine down with them."""
    patterns = (
        "(?=x)a{10000000}",
        "(?=.)(a{40}){40}",
        "(?=x)((a)|(b)){1000000}",
        r"(?=(a+)+b)a",
        r"(a|aa)+\1$",
        "(?=x)" + "(" * 900 + ")" * 900,
        "(?!x)(?:(?:a?){40}){40}b",
        r"(?=.)(?:a.*){18}b",
    )
    for number, pattern in enumerate(patterns):
        await make_flag(self, f"costly-{number}", {"key": "t", "operator": "regex", "value": pattern})

    async def ask() -> None:
        while self.goes_on:
            await ask_flags(self, t="a" * 9_000)

    await side_by_side(ask)


async def headers_in_names(self: Attacker) -> None:
    """A flood of people whose names are encoded headers of e-mails."""
    await self.authorized(
        "POST",
        self.api("hog_functions/"),
        json={
            "type": "destination",
            "name": "mail",
            "enabled": True,
            "hog": "sendEmail({'to': {'email': person.properties.email, 'name': person.properties.name},"
            " 'from': {'email': 'a@example.com'}, 'subject': f'Hello {person.properties.name}', 'text': 'x'})",
        },
    )
    word = base64.b64encode(b"x\r\nBcc: other@example.com\r\n\r\n<b>text</b>").decode()
    for number in count():
        if not self.goes_on:
            return
        properties = {"$set": {"name": f"=?utf-8?b?{word}?=", "email": f"u{number % 50}@example.com"}}
        batch = [{"event": "e", "distinct_id": f"d{number % 50}", "properties": properties}] * 5
        await self.send("POST", "/batch/", json={"api_key": self.token, "batch": batch})


async def one_key_everywhere(self: Attacker) -> None:
    """One key asks for as many diagnostics, live streams and results as it gets."""
    source = "".join(f"fn f{n}(a, b, c) {{ return a + b + c }} " for n in range(350))
    made = await self.authorized(
        "POST",
        self.api("experiments/"),
        json={"name": "x", "feature_flag_key": f"x-{random.getrandbits(40)}"},
    )
    experiment = made.json().get("id") if made is not None else 0
    launched = {"start_date": "2020-01-01T00:00:00Z"}
    await self.authorized("PATCH", self.api(f"experiments/{experiment}/"), json=launched)

    async def diagnose() -> None:
        while self.goes_on:
            await self.authorized(
                "POST",
                self.api("hog_functions/new/diagnostics/"),
                json={"type": "destination", "hog": source},
            )

    async def listen() -> None:
        while self.goes_on:
            head = f"GET {self.api('events/live/')} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.key}\r\n\r\n"
            await self.raw(head.encode(), hold_s=0.2)

    async def compute() -> None:
        while self.goes_on:
            await self.authorized("GET", self.api(f"experiments/{experiment}/results/"))

    await asyncio.gather(side_by_side(diagnose, 12), side_by_side(listen, 12), side_by_side(compute, 4))


async def log_ins(self: Attacker) -> None:
    """Sessions of one key, and attempts with wrong ones."""

    async def log_in() -> None:
        for number in count():
            if not self.goes_on:
                return
            key = self.key if number % 2 else f"phx_{random.getrandbits(200):x}"
            await self.send("POST", "/api/session/", json={"personal_api_key": key})

    await side_by_side(log_in)


async def replays(self: Attacker) -> None:
    """Keys that are made under idempotency keys, repeated, rolled, narrowed and revoked."""

    async def make() -> None:
        while self.goes_on:
            headers = {
                "Authorization": f"Bearer {self.key}",
                "Idempotency-Key": f"{random.getrandbits(64):x}",
            }
            body = {"label": "x", "scopes": ["query:read"]}
            for _ in range(3):
                made = await self.send("POST", "/api/personal_api_keys/", json=body, headers=headers)
            if made is None or made.status_code != 201:
                continue
            path = f"/api/personal_api_keys/{made.json()['id']}/"
            await self.authorized("PATCH", path, json={"scopes": ["*"]})
            await self.authorized("POST", f"{path}roll/")
            await self.authorized("DELETE", path)

    await side_by_side(make)


async def escapes_in_paths(self: Attacker) -> None:
    """Paths, hosts and agents that act on a terminal or look for files, and long ones."""
    paths = (
        "/nothing%1b]0;pwned%07",
        "/static/" + "a" * 5_000,
        "/static/" + "..%2f" * 1_000,
        "/array/" + "%00" * 500 + "/config",
        "/api/projects/" + "9" * 5_000 + "/",
    )
    places = cycle(paths)

    async def ask() -> None:
        while self.goes_on:
            await self.send(
                "GET", next(places), headers={"X-Forwarded-For": "1" * 500, "User-Agent": b"\x9b31m"}
            )

    await side_by_side(ask)


async def hostile_values(self: Attacker) -> None:
    """Events whose names, ids, keys and values are text for another language, and numbers of all sizes."""
    texts = ("'; DROP TABLE events --", "\0", "\ud800", "=cmd|' /C calc'!A0", "{{7*7}}", "$ne", "a" * 199)
    events = []
    for number, text in enumerate(texts * 8):
        keys = {f"{text}{inner}": text for inner in range(40)}
        deep: Any = text
        for _ in range(40):
            deep = {"a": [deep]}
        properties = {**keys, "deep": deep, "huge": 10**300, "n": -(2**63), "$set": {text: text}}
        events.append({"event": text, "distinct_id": f"{text}{number}", "properties": properties})
    body = json.dumps({"api_key": self.token, "batch": events}).encode()

    async def send() -> None:
        while self.goes_on:
            await self.send("POST", "/batch/", content=body)
            await asyncio.sleep(0.2)

    await side_by_side(send, 2)


ATTACKS: dict[str, tuple[Attack, ...]] = {
    "long numbers": (long_numbers,),
    "brackets": (brackets,),
    "costly patterns": (costly_patterns,),
    "headers in names": (headers_in_names,),
    "one key everywhere": (one_key_everywhere,),
    "log-ins": (log_ins,),
    "replays": (replays,),
    "escapes in paths": (escapes_in_paths,),
    "hostile values": (hostile_values,),
    "slow senders": (slow_headers, unfinished_bodies, trickled_chunks),
    "slow readers": (unread_lists, unread_events),
    "bombs": (bombs, many_parts),
    "made-up tokens": (made_up_tokens,),
    "large bodies": (large_bodies_with_a_key,),
    "hostile metrics": (hostile_metrics,) * 6,
    "hostile functions": (hostile_functions,),
}
"""Attacks by their names in tables."""


if __name__ == "__main__":
    main(ATTACKS)
