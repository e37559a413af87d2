"""What the shared furniture costs per request, beside a bare Starlette route of the same run.

In process, without sockets: an authenticated GET (key, scope, project, membership, request id, metrics, JSON),
with and without an access-log line, run on the event loop and in a handler thread; and a hot route, which gets
a request id, metrics and CORS headers only.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson
import uvloop
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from benchmarks._apps import app_of
from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.http.logs import configure_logging
from hoglab.http.management.call import Call
from hoglab.http.management.routing import ResourceRouter
from hoglab.storage.database import Database

ANSWER = {"id": 1, "name": "a small answer"}
ROUNDS = 7


def things() -> ResourceRouter:
    router = ResourceRouter("/things", tag="things", scopes=("thing:read", "thing:write"))

    @router.get("/loop")
    async def on_the_loop(_call: Call) -> dict[str, Any]:
        return ANSWER

    @router.get("/thread")
    def in_a_thread(_call: Call) -> dict[str, Any]:
        return ANSWER

    return router


async def bare(_request: Any) -> Response:
    return Response(orjson.dumps(ANSWER), media_type="application/json")


async def hot(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def measure_us(app: Any, path: str, key: str, requests: int) -> float:
    """The best round's mean time per request in microseconds."""

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_message: Any) -> None: ...

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"authorization", b"Bearer " + key.encode())],
        "http_version": "1.1",
        "scheme": "http",
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 50_000),
        "root_path": "",
    }
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(requests):
            await app(dict(scope), receive, send)
        best = min(best, (time.perf_counter() - started) / requests)
    return best * 1e6


async def run(requests: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = Database.open(Path(folder) / "hoglab.db")
        accounts = AccountService(database)
        first = bootstrap(database, accounts)
        assert first is not None
        quiet = app_of(accounts, things(), hot={"/hot": hot}, access_log=False)
        logged = app_of(accounts, things(), hot={"/hot": hot})
        reference = Starlette(routes=[Route("/api/projects/{project_id}/things/loop", bare)])
        loop, thread = "/api/projects/1/things/loop", "/api/projects/1/things/thread"
        reference_us = await measure_us(reference, loop, first.api_key, requests)
        print(f"   bare Starlette route                      {reference_us:7.1f} us   (reference)")
        for name, app, path in (
            ("hot route", logged, "/hot"),
            ("authenticated GET, on the loop", quiet, loop),
            ("authenticated GET, on the loop, logged", logged, loop),
            ("authenticated GET, in a thread", quiet, thread),
            ("authenticated GET, in a thread, logged", logged, thread),
        ):
            took_us = await measure_us(app, path, first.api_key, requests)
            print(f"   {name:<41} {took_us:7.1f} us   {took_us / reference_us:5.1f} x")
        quiet.close()
        logged.close()
        database.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="short runs")
    requests = 50 if parser.parse_args().smoke else 1500
    with Path(os.devnull).open("w") as sink:
        configure_logging("info", "json", sink)
        uvloop.run(run(requests))


if __name__ == "__main__":
    main()
