"""What somebody without a key can do to a whole server: every route, every encoding, slowly, endlessly, at once."""

from __future__ import annotations

import asyncio
import base64
import gc
import gzip
import os
import resource
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import brotli
import orjson
import pytest
import zstandard
from tests.http.asgi import Answer, ask
from tests.waiting import PATIENCE_S

from hoglab.app import Hoglab
from hoglab.http.management.endpoint import STRANGER_BODY_BYTES
from hoglab.http.requests.body import DISCARDED_BYTES
from hoglab.http.requests.budget import BodyBudget, Lease
from hoglab.http.requests.deadlines import Deadlines
from hoglab.settings import Settings

KEY = "phx_" + "a" * 43
TOKEN = "phc_" + "b" * 43
MIB = 1024 * 1024
LARGE = 20 * MIB
PART = 16 * 1024
WEBHOOK = "/public/webhooks/0199f0f0-0000-7000-8000-000000000000"

V1 = [
    (b"authorization", f"Bearer {TOKEN}".encode()),
    (b"content-type", b"application/json"),
    (b"user-agent", b"test/1"),
    (b"posthog-sdk-info", b"test/1"),
    (b"posthog-attempt", b"1"),
    (b"posthog-request-id", b"0199f0f0-0000-7000-8000-000000000000"),
    (b"posthog-request-timestamp", b"2026-01-01T00:00:00Z"),
]


@pytest.fixture(scope="module")
def hoglab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hoglab]:
    opened = open_in(tmp_path_factory.mktemp("strangers"))
    opened.start()
    yield opened
    opened.stop()


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as opened:
        yield opened


def open_in(folder: Path) -> Hoglab:
    settings = Settings(
        data=folder / "data", bootstrap_api_key=KEY, bootstrap_project_token=TOKEN, access_log=False
    )
    return Hoglab.open(settings)


def operations(hoglab: Hoglab) -> list[tuple[str, str]]:
    """Method and path of everything that a key is needed for."""
    return _operations(hoglab, are_open=False)


def open_operations(hoglab: Hoglab) -> list[tuple[str, str]]:
    """The same of what anybody may ask for: to be logged in."""
    found = _operations(hoglab, are_open=True)
    assert found == [("POST", "/api/session")]
    return found


def _operations(hoglab: Hoglab, *, are_open: bool) -> list[tuple[str, str]]:
    found = []
    for operation in hoglab.http.management.table.operations():
        if operation.is_open is not are_open:
            continue
        path = "/".join("1" if part.startswith("{") else part for part in operation.path.split("/"))
        found.append((operation.method, path))
    return found


def other_paths(hoglab: Hoglab) -> list[str]:
    """Everything else that is served: of SDKs, probes, documents, and what has parameters in its path."""
    patterns = ["/array/x/config", "/static/x.js", "/toolbar/x", "/site_app/1", WEBHOOK, "/nothing"]
    return [*hoglab.http._exact, *patterns]


# --- bodies before keys


def chunks(total: int) -> Iterator[bytes]:
    for _ in range(total // PART):
        yield bytes(PART)


@pytest.mark.parametrize(
    "content_type",
    [b"application/json", b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x"],
)
def test_no_operation_reads_the_body_of_a_stranger(
    hoglab: Hoglab, runner: asyncio.Runner, content_type: bytes
) -> None:
    async def send(method: str, path: str, *headers: tuple[bytes, bytes], query: bytes = b"") -> Answer:
        sent = [(b"content-type", content_type), *headers]
        return await ask(hoglab.http, method, path, sent, body=chunks(LARGE), is_whole=False, query=query)

    async def main() -> None:
        announced = (b"content-length", b"%d" % LARGE)
        wrong = (b"authorization", b"Bearer phx_wrong")
        assert len(operations(hoglab)) > 200
        for method, path in open_operations(hoglab):
            is_json = content_type == b"application/json"
            answer = await send(method, path, announced)
            assert (answer.status, answer.asked) == (413 if is_json else 415, 0)
            answer = await send(method, path)  # what is not read is waited for, up to a limit, and not kept
            assert answer.asked <= (STRANGER_BODY_BYTES if is_json else DISCARDED_BYTES) / PART + 1
        for method, path in operations(hoglab):
            for headers, query in (
                ([announced], b""),
                ([announced, wrong], b""),
                ([announced], b"personal_api_key=phx_wrong"),
            ):
                answer = await send(method, path, *headers, query=query)
                assert (answer.status, answer.asked) == (401, 0), (method, path, headers)
        # Without a length nobody knows that it is too much before that much was read.
        for method, path in operations(hoglab)[::10]:
            answer = await send(method, path)
            assert answer.status == 401
            assert answer.asked <= STRANGER_BODY_BYTES / PART + 1
            assert (await send(method, path, wrong)).status == 401

    runner.run(main())


def test_the_protocol_with_its_token_in_a_header_reads_no_body_of_a_stranger(
    hoglab: Hoglab, runner: asyncio.Runner
) -> None:
    wrong = [(b"authorization", b"Bearer phc_wrong"), *V1[1:], (b"content-length", b"%d" % (9 * MIB))]
    answer = runner.run(ask(hoglab.http, "POST", "/i/v1/analytics/events", wrong, body=chunks(9 * MIB)))
    assert (answer.status, answer.asked) == (401, 0)


def test_bodies_count_for_their_project_once_it_is_known(
    hoglab: Hoglab, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of webhooks and flags were among those of strangers for as long as they were worked on."""
    moved: list[tuple[str | None, int]] = []
    move = BodyBudget.move

    def noted(self: BodyBudget, lease: Lease, size: int) -> None:
        moved.append((lease.owner, size))
        move(self, lease, size)

    monkeypatch.setattr(BodyBudget, "move", noted)
    flags = orjson.dumps({"token": TOKEN, "distinct_id": "u", "x": "x" * 300_000})
    webhook = orjson.dumps({"x": "x" * 300_000})

    async def send(path: str, body: bytes) -> list[tuple[str | None, int]]:
        moved.clear()
        answer = await ask(hoglab.http, "POST", path, [(b"content-type", JSON_TYPE)], body=[body])
        assert answer.status == 200, answer
        assert sum(size for _, size in moved) == 0, "all of it is given back"
        return list(moved)

    async def main() -> None:
        headers = [(b"authorization", f"Bearer {KEY}".encode()), (b"content-type", JSON_TYPE)]
        function = {"type": "source_webhook", "name": "W", "hog": "return {}", "enabled": True}
        made = await ask(
            hoglab.http, "POST", "/api/projects/1/hog_functions/", headers, body=[orjson.dumps(function)]
        )
        path = f"/public/webhooks/{orjson.loads(made.body)['id']}"
        assert "project:1" in {owner for owner, _ in await send("/flags/", flags)}
        await send(path, webhook)
        of_known = {owner for owner, _ in await send(path, webhook)}
        assert of_known == {"project:1"}, "of a function that is known, from the beginning"

    runner.run(main())


# --- slow senders


def test_no_path_waits_for_a_slow_sender(
    hoglab: Hoglab, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deadlines are short here; without one, a path waits for ever."""
    begin = Deadlines.begin
    waited: list[float] = []

    def soon(self: Deadlines, task: Any, timeout_s: float) -> None:
        waited.append(timeout_s)
        begin(self, task, 0.005)

    monkeypatch.setattr(Deadlines, "begin", soon)
    key = (b"authorization", f"Bearer {KEY}".encode())

    async def main() -> None:
        late = 0
        paths = [("POST", path, V1 if "/i/v1/a" in path else []) for path in other_paths(hoglab)]
        paths += [
            (method, path, [key]) for method, path in operations(hoglab) if method in ("POST", "PUT", "PATCH")
        ]
        for method, path, headers in paths:
            sent = [*headers, (b"content-length", b"1000")]
            answer = await asyncio.wait_for(
                ask(hoglab.http, method, path, sent, body=[b"{"], is_whole=False), 20
            )
            late += answer.status == 408
            assert answer.status < 500, (method, path, answer)
        assert late > 100
        assert max(waited) <= 30

    runner.run(main())


# --- bombs


def _zlib(data: bytes) -> bytes:
    return zlib.compress(data)


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": _zlib,
    "br": lambda data: bytes(brotli.compress(data, quality=5)),
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
}
BODY_PATHS = [
    *("/batch", "/i/v0/e", "/e", "/capture", "/track", "/engage", "/i/v0/ai", "/i/v0/ai/batch"),
    *("/s", "/i/v1/logs", "/i/v1/analytics/events", "/flags", "/decide", WEBHOOK, "/api/projects/1/query/"),
]
FORM, JSON_TYPE = b"application/x-www-form-urlencoded", b"application/json"


def bombs() -> Iterator[tuple[str, bytes, dict[str, bytes], bytes]]:
    """Name, query, headers and body of what becomes much more than it is."""
    plain = bytes(128 * MIB)
    packed = {name: compress(plain) for name, compress in COMPRESSIONS.items()}
    for name, data in packed.items():
        yield name, b"", {"content-encoding": name.encode()}, data
        yield f"{name}, not said", b"", {}, data
        yield f"{name} in base64", b"compression=base64", {}, base64.b64encode(data)
        yield f"{name} twice", b"", {"content-encoding": name.encode()}, COMPRESSIONS[name](data)
        yield f"{name} in gzip", b"", {"content-encoding": b"gzip"}, gzip.compress(data)
        yield (
            f"{name} in a form",
            b"compression=gzip-js",
            {"content-type": FORM},
            b"data=" + base64.b64encode(data),
        )
    yield "gzip-js", b"compression=gzip-js", {}, packed["gzip"]
    yield "gzip in base64 in gzip", b"compression=gzip", {}, gzip.compress(base64.b64encode(packed["gzip"]))
    yield "members", b"", {"content-encoding": b"gzip"}, gzip.compress(b"") * 90_000
    yield "lz64", b"compression=lz64", {}, lz64_bomb()
    yield "percent", b"", {"content-type": FORM}, b"data=" + b"%41" * 600_000
    yield (
        "long string",
        b"",
        {},
        _event(b'{"a":"' + b"x" * 1_900_000 + b'","b":' + b"[" * 120 + b"]" * 120 + b"}"),
    )
    yield "strings", b"", {}, _event(b"[" + b'"",' * 600_000 + b"[]," * 150 + b"[]]")
    yield "escapes", b"", {}, _event(b'["' + b'\\"' * 900_000 + b'\\ud800"')
    yield (
        "empty events",
        b"",
        {"content-encoding": b"gzip"},
        gzip.compress(b'{"api_key":"t","batch":[' + b"{}," * 6_000_000 + b"{}]}"),
    )
    for field in (b"distinct_id", b"timestamp", b"offset", b"sent_at", b"$distinct_id", b"token"):
        lists = b'{"api_key":"t","event":"e","%s":[' % field + b"[]," * 1_300_000 + b"[]]}"
        yield f"lists as {field.decode()}", b"", {"content-encoding": b"gzip"}, gzip.compress(lists)
    yield "keys", b"", {}, b"{" + b",".join(b'"%d":1' % number for number in range(180_000)) + b"}"


def _event(properties: bytes) -> bytes:
    return b'{"api_key":"t","batch":[{"event":"e","distinct_id":"u","properties":' + properties + b"}]}"


def lz64_bomb() -> bytes:
    """One character, then phrase after phrase, each by one longer than the one before."""
    bits: list[int] = []

    def put(value: int, width: int) -> None:
        bits.extend(value >> place & 1 for place in range(width))

    put(0, 2)
    put(ord("a"), 8)
    width, room, code = 3, 4, 4
    for _ in range(60_000):
        put(code, width)
        code += 1
        room -= 1
        if room == 0:
            width, room = width + 1, 1 << width
    bits += [0] * (-len(bits) % 8)
    packed = bytes(int("".join(map(str, bits[at : at + 8])), 2) for at in range(0, len(bits), 8))
    return base64.b64encode(packed)


ROOM_BYTES = 200 * MIB
"""What the process may take more than it has when all is set up: what bombs of 128 MiB become does not fit twice."""


def _allow_little_more() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def explode(folder: Path) -> None:
    """Send every bomb to every path, in a process that is allowed little memory. Prints what went wrong."""
    hoglab = open_in(folder)
    sent = list(bombs())
    key = (b"authorization", f"Bearer {KEY}".encode())

    async def main() -> None:
        await ask(hoglab.http, "POST", "/flags", body=[b'{"token":"x"}'])  # its threads and modules are there
        _allow_little_more()
        for path in BODY_PATHS:
            for name, query, headers, body in sent:
                head = dict(V1) if "/i/v1/a" in path else dict([key]) if path.startswith("/api/") else {}
                head.setdefault(b"content-type", JSON_TYPE)
                head |= {name.encode(): value for name, value in headers.items()}
                length = (b"content-length", b"%d" % len(body))
                answer = await ask(
                    hoglab.http, "POST", path, [*head.items(), length], query=query, body=[body]
                )
                if not (
                    400 <= answer.status < 500 or (path in ("/s", "/i/v1/logs") and answer.status == 200)
                ):
                    print(path, name, answer.status, answer.body[:200])

    asyncio.run(main())
    print("survived", flush=True)
    os._exit(0)  # nothing was started that could be stopped


def test_no_bomb_takes_more_memory_than_bodies_may(tmp_path: Path) -> None:
    program = (
        "import threading; threading.stack_size(512 * 1024); from pathlib import Path; "
        f"from tests.e2e import test_strangers; test_strangers.explode(Path({str(tmp_path)!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},  # else each thread reserves addresses, which are counted
    )
    assert done.stdout.strip().splitlines() == ["survived"], done.stdout[-3000:] + done.stderr[-3000:]
    assert "Traceback" not in done.stderr


# --- what is remembered of strangers


def everything() -> list[Any]:
    """What there is in memory, also what a server takes out of the collector's sight when it has started."""
    gc.unfreeze()
    gc.collect()
    return gc.get_objects()


def test_what_strangers_send_is_not_remembered(hoglab: Hoglab, runner: asyncio.Runner) -> None:
    """Tokens, keys, paths, hosts, addresses, ids: ever new ones leave nothing behind."""

    def sizes() -> dict[int, int]:
        return {
            id(each): len(each)
            for each in everything()
            if isinstance(each, (dict, set, list)) and len(each) > 50
        }

    async def wave(start: int, count: int) -> None:
        for number in range(start, start + count):
            address = (f"2001:db8:{number >> 16:x}:{number & 0xFFFF:x}::1", 1)
            forwarded = (b"x-forwarded-for", b"203.0.113.%d, 198.51.100.%d" % (number % 256, number >> 8))
            host_key = [
                (b"authorization", b"Bearer phx_%d" % number),
                (b"x-request-id", b"r%d" % number),
                forwarded,
            ]
            event = orjson.dumps({"token": f"phc_{number}", "event": "e", "distinct_id": f"u{number}"})
            for method, path, headers, query, body in (
                ("GET", f"/api/projects/{number}/", host_key, b"", b""),
                ("GET", f"/nothing/{number}", (), b"", b""),
                (f"M{number}", "/_health", (), b"", b""),
                ("POST", "/batch/", [forwarded], b"", event),
                ("POST", "/flags/", [forwarded], b"v=2&x=%d" % number, event),
                ("GET", f"/array/phc_{number}/config", (), b"", b""),
                ("GET", f"/static/{number}.js", (), b"", b""),
                ("POST", WEBHOOK[:-6] + f"{number:06x}", (), b"", b"{}"),
                ("GET", "/flags/definitions", host_key, b"token=phc_%d" % number, b""),
            ):
                await ask(
                    hoglab.http,
                    method,
                    path,
                    headers,
                    query=query,
                    body=[body] if body else (),
                    client=address,
                )

    async def main() -> None:
        await wave(0, 300)
        before = sizes()
        await wave(1_000, 300)
        grown = {key: size for key, size in sizes().items() if size - before.get(key, size) >= 250}
        assert not grown

    runner.run(main())


LONG = 20_000
"""Characters of a text that nobody can know; a thousand of them in a cache are memory that a stranger took."""
SENDERS = 40
MOST_LEFT = 10
"""Texts that may be there a moment later: of the last ones."""


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "replace")


def long_texts(mark: bytes) -> int:
    """How many long texts with a mark are in memory, in whatever holds them, caches of functions as well."""
    found = set()
    looked_at = everything()
    while looked_at:
        for each in gc.get_referents(looked_at.pop()):
            if isinstance(each, (str, bytes)):
                if len(each) > LONG // 2 and mark in _bytes(each):
                    found.add(id(each))
            elif isinstance(each, (tuple, dict)) and not gc.is_tracked(each):
                looked_at.append(each)
    return len(found)


@pytest.mark.timeout(900)
def test_no_long_text_of_a_stranger_stays_in_memory(hoglab: Hoglab, runner: asyncio.Runner) -> None:
    """With a project's token, which is public: caches are bounded by their bytes, not by their entries alone."""
    mark = "never-seen-by-anybody-"
    headers = [(b"authorization", f"Bearer {KEY}".encode()), (b"content-type", JSON_TYPE)]
    # Addresses are left out: they are bounded in length, and the library that reads them remembers 128 of them.
    hog = "try { fetch('http://192.0.2.1/', {'headers': {event.properties.long: 'a'}}) } catch {}"
    function = {
        "type": "destination",
        "name": "Looks at everything",
        "hog": f"{hog} return match('a', event.properties.long)",
        "enabled": True,
        "inputs_schema": [{"key": "a", "type": "string"}],
        "inputs": {"a": {"value": "{event.properties.long}"}},
        "filters": {
            "properties": [
                {
                    "type": "hogql",
                    "key": "properties.long like properties.long and not empty(properties.long)",
                },
                {"type": "hogql", "key": "not isIPAddressInRange('10.0.0.1', properties.long)"},
            ]
        },
    }

    async def wave() -> None:
        made = await ask(
            hoglab.http, "POST", "/api/projects/1/hog_functions/", headers, body=[orjson.dumps(function)]
        )
        assert made.status == 201, made.body
        for number in range(SENDERS):
            long = f"{mark}{number}-" + "x" * LONG
            raw = long.encode()
            forwarded = [(b"x-forwarded-for", raw)]
            properties = {
                "long": long,
                "$feature_flag": long,
                "$ip": long,
                "$current_url": long,
                "$lib": long,
            }
            batch = [
                {"event": name, "distinct_id": f"u{number}", "properties": properties}
                for name in ("e", "$feature_flag_called")
            ]
            events = orjson.dumps({"token": TOKEN, "batch": batch})
            flags = orjson.dumps(
                {
                    "token": TOKEN,
                    "distinct_id": f"u{number}",
                    "person_properties": {"long": long},
                    "groups": {"long": long},
                    "flag_keys_to_evaluate": [long],
                    "evaluation_contexts": [long],
                    "timezone": long,
                }
            )
            unknown = orjson.dumps({"token": long, "distinct_id": long, "event": long})
            for method, path, sent, query, body in (
                ("POST", "/batch/", forwarded, b"", events),
                ("POST", "/batch/", [(b"user-agent", raw)], b"", unknown),
                ("POST", "/flags/", forwarded, b"v=2&" + raw, flags),
                ("POST", "/flags/", [(b"content-type", raw)], b"", unknown),
                ("GET", "/_health", [(b"host", raw)], b"", b""),
                ("GET", "/nothing/" + long, [(b"x-request-id", raw)], raw, b""),
                ("GET", "/api/projects/1/", [(b"authorization", b"Bearer phx_" + raw)], b"", b""),
                ("GET", f"/array/{long}/config", [], b"", b""),
                ("GET", f"/static/{long}.js", [(b"if-none-match", raw)], b"", b""),
                (
                    "OPTIONS",
                    "/flags/",
                    [(b"origin", raw), (b"access-control-request-headers", raw)],
                    b"",
                    b"",
                ),
                ("POST", WEBHOOK, forwarded, b"", flags),
            ):
                await ask(hoglab.http, method, path, sent, query=query, body=[body] if body else ())

    runner.run(wave())
    deadline = time.monotonic() + PATIENCE_S
    while (left := long_texts(mark.encode())) > MOST_LEFT and time.monotonic() < deadline:
        time.sleep(1.0)  # what was sent is ingested and delivered meanwhile
    assert left <= MOST_LEFT
