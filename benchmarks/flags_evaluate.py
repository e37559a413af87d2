"""How many evaluations of ten flags a second, beside a bare Starlette answer on the same server.

Starts the application on the real server (Granian) in a process of its own and drives it from this one over
keep-alive connections: ``POST /flags/?v=2`` for ten flags, of which four have variants and three have
conditions on a person property. The property is sent along (as client SDKs do), or is that of the stored person:
one who was asked for lately, or one who must be read from the database. Or the request logs an anonymous visitor in
to flags with experience continuity. The reference is
a Starlette application that answers a constant, on the same server in a process of its own, driven by the same
requests. A project of 500 flags shows that the work follows the flags asked for, not those that there are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any
from uuid import UUID, uuid4

from benchmarks._driver import Served, posts, run, served
from hoglab.storage.event_log import SequenceNumber

TOKEN = "phc_benchmark_token"  # noqa: S105 - project tokens are public
PERSONS = 10_000
PATH = "/flags/?v=2"
FAILED = b'"errorsWhileComputingFlags":true'
REQUESTS = 256
MANY = 500
"""Flags of a large project."""
ROUNDS = 5

ABC = {
    "variants": [
        {"key": k, "rollout_percentage": p} for k, p in (("control", 34), ("test-1", 33), ("test-2", 33))
    ]
}
PRO = {"key": "plan", "type": "person", "value": ["pro", "enterprise"], "operator": "exact"}


def flags(count: int = 10) -> Iterator[dict[str, Any]]:
    """The ten flags over and over, under names of their own."""
    ten = list(_ten_flags())
    for number in range(count):
        flag = ten[number % 10]
        yield flag if number < 10 else {**flag, "key": f"{flag['key']}-{number // 10}"}


def _ten_flags() -> Iterator[dict[str, Any]]:
    for number in range(3):
        yield {"key": f"rollout-{number}", "filters": {"groups": [{"rollout_percentage": 10 + 30 * number}]}}
    for number in range(4):
        yield {
            "key": f"variants-{number}",
            "filters": {"groups": [{}], "multivariate": ABC, "payloads": {"test-1": "1"}},
        }
    for number in range(3):
        group = {"properties": [PRO], "rollout_percentage": 100 - 25 * number}
        yield {"key": f"condition-{number}", "filters": {"groups": [group]}}


# --- the server processes


async def serve_flags(
    folder: Path, *, count: int = 10, continuity: bool = False, forgetful: bool = False
) -> None:
    from benchmarks._apps import app_of
    from hoglab.accounts.bootstrap import bootstrap
    from hoglab.accounts.service import AccountService
    from hoglab.flags.evaluation.endpoint import FlagEvaluator
    from hoglab.flags.evaluation.sdk_routes import hot_routes
    from hoglab.flags.matching.registry import FlagRegistry
    from hoglab.flags.service import FlagService
    from hoglab.people.service import PersonService
    from hoglab.storage.database import Database

    database = Database.open(folder / "hoglab.db")
    accounts = AccountService(database)
    bootstrap(database, accounts, project_token=TOKEN)
    project = accounts.project(1)
    assert project is not None
    service = FlagService(database)
    for flag in flags(count):
        service.create(project, None, {**flag, "ensure_experience_continuity": continuity})
    people = PersonService(database)
    people.apply([Seen(number) for number in range(PERSONS)], log_offset=SequenceNumber(1))
    known = None if forgetful else people.known
    evaluator = FlagEvaluator(database, FlagRegistry(database), accounts.project_by_token, known)
    await serve(app_of(accounts, hot=hot_routes(evaluator, accounts)))


class Seen:
    """An event that makes a person with a plan."""

    project_id = 1
    event = "$set"
    timestamp = datetime(2026, 1, 1, tzinfo=UTC)
    log_offset = SequenceNumber(1)

    def __init__(self, number: int) -> None:
        self.uuid: UUID = uuid4()
        self.distinct_id = f"user-{number}"
        plan = "pro" if number % 2 else "free"
        self.properties: dict[str, Any] = {
            "$set": {"plan": plan, "email": f"user-{number}@example.com", "age": number}
        }


async def serve_bare() -> None:
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    class Bare(Starlette):
        def end_streams(self) -> None:
            """Nothing: there are none."""

    async def hello(_request: Any) -> Response:
        return Response(b'{"status":"Ok"}', media_type="application/json")

    await serve(Bare(routes=[Route("/flags/", hello, methods=["POST"])]))


async def serve(app: Any) -> None:
    from hoglab.app import calm_garbage_collector
    from hoglab.http.server import claim, stop_on_signals
    from hoglab.http.server import serve as serve_app

    calm_garbage_collector()  # as the server does
    stop = asyncio.Event()
    stop_on_signals(stop)
    with claim("127.0.0.1", 0) as address:
        await serve_app(app, address, stop=stop, ready=lambda address: print(address.port, flush=True))


# --- the measurement


def bodies(**more: Any) -> list[bytes]:
    """Requests as SDKs send them, for different people."""
    made = []
    for number in range(REQUESTS):
        body = {
            "token": TOKEN,
            "distinct_id": f"user-{number * 37 % PERSONS}",
            "groups": {},
            "person_properties": {},
            "geoip_disable": True,
        }
        body |= {key: value(number) for key, value in more.items()}
        made.append(json.dumps(body).encode())
    return made


def _plan(number: int) -> dict[str, str]:
    return {"plan": "pro" if number % 2 else "free", "$browser": "Chrome"}


def server(*arguments: str) -> AbstractContextManager[Served]:
    """A server process with these arguments of this file."""
    return served("-m", "benchmarks.flags_evaluate", *arguments)


def measure(seconds: float) -> None:
    def asked(count: int) -> list[bytes]:
        keys = [flag["key"] for flag in flags(count)]
        return bodies(person_properties=_plan, flag_keys_to_evaluate=lambda _number: keys)

    sent = bodies(person_properties=_plan)
    stored = bodies()
    login = bodies(**{"$anon_distinct_id": lambda number: f"anonymous-{number}"})
    with (
        tempfile.TemporaryDirectory() as plain,
        tempfile.TemporaryDirectory() as unknown,
        tempfile.TemporaryDirectory() as sticky,
        tempfile.TemporaryDirectory() as many,
        server("--bare") as bare,
        server("--serve", plain) as flags_server,
        server("--serve", unknown, "--forgetful") as forgetful_server,
        server("--serve", sticky, "--continuity") as sticky_server,
        server("--serve", many, "--flags", str(MANY)) as many_server,
    ):
        cases = (
            ("bare Starlette answer", bare, sent),
            ("properties sent", flags_server, sent),
            ("properties stored, known", flags_server, stored),
            ("properties stored, read", forgetful_server, stored),
            ("login with continuity", sticky_server, login),
            (f"{MANY} flags, all", many_server, sent),
            (f"{MANY} flags, 50 asked for", many_server, asked(50)),
            (f"{MANY} flags, 5 asked for", many_server, asked(5)),
        )
        rounds = [  # in turns, so that what else the machine does hits all of them
            [run(target, posts(PATH, requests), seconds, wrong=FAILED) for _, target, requests in cases]
            for _ in range(ROUNDS)
        ]
    for case, (name, _, _) in enumerate(cases):
        results = [results[case] for results in rounds]
        ratio = median(results[case].load.rate / results[0].load.rate for results in rounds)
        cpu_us = median(each.cpu_us for each in results)
        cpu_ratio = median(results[0].cpu_us / results[case].cpu_us for results in rounds)
        shown = (
            f"{ratio:5.2f} x the requests   {cpu_ratio:5.2f} x for each second of CPU"
            if case
            else "  reference"
        )
        load = max(each.load for each in results)
        print(
            f"   {name:<26} {load.rate:8.0f} requests/s   p50 {load.median_ms:5.1f} ms   "
            f"p99 {load.tail_ms:5.1f} ms   {cpu_us:5.0f} us of CPU   {shown}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="short runs")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--flags", type=int, default=10, help=argparse.SUPPRESS)
    parser.add_argument("--continuity", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--forgetful", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare or options.serve is not None:
        import uvloop

        from hoglab.http.logs import configure_logging

        # Lines of the access log are part of the work, but nobody reads them.
        configure_logging("info", "json", Path(os.devnull).open("w"))  # noqa: SIM115 - as long as the process
        serving = (
            serve_bare()
            if options.bare
            else serve_flags(
                options.serve,
                count=options.flags,
                continuity=options.continuity,
                forgetful=options.forgetful,
            )
        )
        uvloop.run(serving)
    else:
        measure(0.2 if options.smoke else 1.0)


if __name__ == "__main__":
    main()
