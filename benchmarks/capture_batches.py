"""How fast batches of events are acknowledged durably, beside the same server that only un-gzips them.

Starts the event endpoints on the real server (Granian) in a process of their own and drives them from
this one over keep-alive connections: 100-event gzip batches as SDKs send them. Every 200 means that the
batch is on disk. The reference route of the same server reads and decompresses the same body.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import random
import tempfile
import zlib
from pathlib import Path
from statistics import median
from typing import Any
from uuid import UUID

from benchmarks._driver import CONNECTIONS, Run, Served, posts, run, served

TOKEN = "phc_benchmark_token"  # noqa: S105 - project tokens are public
EVENTS = 100
GZIP = {"Content-Encoding": "gzip"}


def make_batch(seed: int) -> bytes:
    """A batch of `EVENTS` events of about 600 bytes each, gzip-compressed."""
    random_ = random.Random(seed)
    events = [
        {
            "event": random_.choice(["$pageview", "purchase", "$feature_flag_called"]),
            "distinct_id": f"user-{random_.randrange(100_000)}",
            "uuid": str(UUID(int=random_.getrandbits(128), version=4)),
            "timestamp": "2026-11-21T01:03:39.948129+00:00",
            "properties": {
                "$lib": "posthog-python",
                "$lib_version": "7.91.1",
                "$current_url": f"https://shop.example/products/{random_.randrange(5000)}",
                "$browser": "Chrome",
                "$session_id": str(UUID(int=random_.getrandbits(128), version=4)),
                **{f"property_{number}": random_.choice(["alpha", "beta", 17, True]) for number in range(14)},
            },
        }
        for _ in range(EVENTS)
    ]
    body = {"api_key": TOKEN, "batch": events, "sent_at": "2026-11-21T01:03:40.171843+00:00"}
    return gzip.compress(json.dumps(body, separators=(",", ":")).encode())


# --- the server process


async def serve(folder: Path) -> None:
    from tests.embedded import EmbeddedEventLog

    from benchmarks._apps import app_of
    from hoglab.accounts.bootstrap import bootstrap
    from hoglab.accounts.service import AccountService
    from hoglab.capture import Capture, capture_routes
    from hoglab.http.server import claim, stop_on_signals
    from hoglab.http.server import serve as serve_app
    from hoglab.storage.database import Database

    database = Database.open(folder / "hoglab.db")
    accounts = AccountService(database)
    bootstrap(database, accounts, project_token=TOKEN)
    log = EmbeddedEventLog(folder / "queue.db")
    capture = Capture(log, accounts.project_by_token)
    app = app_of(accounts, hot={**capture_routes(capture), "/gunzip": gunzip_only})
    stop = asyncio.Event()
    stop_on_signals(stop)
    with claim("127.0.0.1", 0) as address:
        await serve_app(app, address, stop=stop, ready=lambda address: print(address.port, flush=True))
    capture.close()
    log.close()
    database.dispose()


async def gunzip_only(_scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    zlib.decompressobj(31).decompress(body, 20 * 1024 * 1024)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"15")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"status":"Ok"}'})


# --- the measurement


def measure(server: Served, seconds: float, rounds: int) -> None:
    bodies = [make_batch(seed) for seed in range(64)]
    size = sum(map(len, bodies)) // len(bodies)
    print(f"{EVENTS}-event batches, {size} bytes gzipped, {CONNECTIONS} connections, {rounds} rounds")
    run(server, posts("/gunzip", bodies, GZIP), min(seconds, 1.0))
    runs: dict[str, list[Run]] = {"/gunzip": [], "/batch/": []}
    for _ in range(rounds):
        for path, measured in runs.items():
            measured.append(run(server, posts(path, bodies, GZIP), seconds))
    for path, measured in runs.items():
        load = sorted(each.load for each in measured)[rounds // 2]
        print(
            f"  {path:<9} {load.rate:8,.0f} requests/s {load.rate * EVENTS:10,.0f} events/s   "
            f"median {load.median_ms:6.2f} ms   p99 {load.tail_ms:6.2f} ms "
            f"({load.tail_ms / load.median_ms:.1f} times as long)   "
            f"{median(each.cpu_us for each in measured):5.0f} us of CPU"
        )
    pairs = list(zip(runs["/gunzip"], runs["/batch/"], strict=True))
    ratios = sorted(durable.load.rate / plain.load.rate for plain, durable in pairs)
    cpu = median(plain.cpu_us / durable.cpu_us for plain, durable in pairs)
    print(
        f"durable capture / un-gzipping only: {median(ratios):.2f} "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f}; target 0.35), {cpu:.2f} for each second of CPU"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run")
    parser.add_argument("--serve", type=Path, metavar="DIR", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        import uvloop

        uvloop.run(serve(options.serve))
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        served("-m", "benchmarks.capture_batches", "--serve", folder) as server,
    ):
        measure(server, 0.5 if options.smoke else 2.0, 1 if options.smoke else 7)


if __name__ == "__main__":
    main()
