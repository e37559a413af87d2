"""Processor time of a server whose requests have one event each, with and without lingering between small batches.

Web SDKs often send one event a request. Starts a server that ingests whatever is there at once
(``HOGLAB_INGESTION_LINGER_S=0``, the reference) and one with the default, each on a directory of its own, and sends
both the same requests at the same pace in turns. Then probes how long it takes until an event can be read.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from uuid import uuid4

import httpx

from benchmarks.growth import cpu_ms, rest
from benchmarks.results_served import serving

PER_S = 50
"""Requests a second, one event each."""
VARIABLE = "HOGLAB_INGESTION_LINGER_S"
READABLE_S = 0.5
"""Time after which an event can be read, at most."""
LEAST_SAVED = 1 / 3
"""Share of the processor time that lingering spares, at least."""


@dataclass
class Measured:
    """A server, and its figures by turns."""

    client: httpx.Client
    process_id: int
    token: str
    cpu_ms: list[float] = field(default_factory=list)
    """Processor time of one event."""
    readable_s: list[float] = field(default_factory=list)
    """Time from the answer to a request until its event can be read."""


@contextmanager
def server(folder: Path, linger_s: str | None) -> Iterator[Measured]:
    """Run a server with a setting, None for the default."""
    os.environ.pop(VARIABLE, None)
    if linger_s is not None:
        os.environ[VARIABLE] = linger_s
    folder.mkdir()
    with serving(folder) as (client, process_id):
        rest(process_id)
        yield Measured(client, process_id, client.get("/api/projects/1/").json()["api_token"])


def send(measured: Measured, uuid: str) -> None:
    """Send a request with one event."""
    properties = {"$lib": "web", "$current_url": "https://shop.example/", "$browser": "Chrome"}
    event = {"event": "$pageview", "distinct_id": f"user-{uuid[:3]}", "uuid": uuid, "properties": properties}
    measured.client.post("/e/", json={"api_key": measured.token, **event}).raise_for_status()


def cost(measured: Measured, seconds: float) -> None:
    """Send at the pace for some seconds, and note the processor time of an event, work that it leaves behind too."""
    count = round(seconds * PER_S)
    before, started_at = cpu_ms(measured.process_id), time.perf_counter()
    for number in range(count):
        time.sleep(max(0.0, started_at + number / PER_S - time.perf_counter()))
        send(measured, str(uuid4()))
    time.sleep(1.0)
    measured.cpu_ms.append((cpu_ms(measured.process_id) - before) / count)


def probe(measured: Measured) -> None:
    """Send two events, and note how long the second, which lingers, takes to be readable."""
    send(measured, str(uuid4()))
    uuid = str(uuid4())
    send(measured, uuid)
    sent_at = time.perf_counter()
    while measured.client.get(f"/api/projects/1/events/{uuid}/").status_code != 200:
        time.sleep(0.005)
    measured.readable_s.append(time.perf_counter() - sent_at)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run")
    options = parser.parse_args()
    seconds, turns = (1.0, 1) if options.smoke else (8.0, 5)
    with (
        tempfile.TemporaryDirectory() as folder,
        server(Path(folder) / "reference", "0") as reference,
        server(Path(folder) / "default", None) as default,
    ):
        for _ in range(turns):
            for measured in (reference, default):
                cost(measured, seconds)
                probe(measured)
    ratios = [mine / its for mine, its in zip(default.cpu_ms, reference.cpu_ms, strict=True)]
    for name, measured in (("no linger", reference), ("default", default)):
        print(
            f"{name:<10} {median(measured.cpu_ms):6.2f} processor seconds for 1,000 events at {PER_S}/s; an event can "
            f"be read after {median(measured.readable_s) * 1e3:.0f} ms, at most {max(measured.readable_s) * 1e3:.0f} ms"
        )
    print(
        f"default / no linger: {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}; target "
        f"{1 - LEAST_SAVED:.2f}), readable after {max(default.readable_s):.2f} s (target {READABLE_S:g} s)"
    )


if __name__ == "__main__":
    main()
