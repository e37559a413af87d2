"""Time from start to ready, and memory of an idle server, beside a bare Starlette server on Granian."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

READY_LIMIT_S = 3.0
MEMORY_LIMIT_MB = 250.0
IDLE_S = 2.0

BARE = """
import sys
from granian import Granian
from granian.constants import Interfaces
Granian("benchmarks.server_start:bare", interface=Interfaces.ASGI, port=int(sys.argv[1]), log_enabled=False).serve()
"""


async def bare(scope, _receive, send):  # type: ignore[no-untyped-def]
    """The smallest application there is."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    runs = 2 if parser.parse_args().smoke else 5

    with tempfile.TemporaryDirectory() as directory:

        def hoglab(port: int) -> list[str]:
            return [sys.executable, "-m", "hoglab", "serve", "--data", directory, "--port", str(port)]

        ours = measure(hoglab, "/_readiness", runs)
    reference = measure(lambda port: [sys.executable, "-c", BARE, str(port)], "/", runs)
    print(
        f"time to ready   hoglab {ours[0]:.2f} s   bare Granian {reference[0]:.2f} s   limit {READY_LIMIT_S:g} s"
    )
    print(
        f"idle memory     hoglab {ours[1]:.0f} MB   bare Granian {reference[1]:.0f} MB   "
        f"ratio {ours[1] / reference[1]:.1f}   limit {MEMORY_LIMIT_MB:g} MB"
    )


def measure(command: Callable[[int], list[str]], path: str, runs: int) -> tuple[float, float]:
    """Medians of the seconds until ``path`` answers 200, and of the resident megabytes of the idle processes."""
    ready, memory = [], []
    for _ in range(runs):
        with socket.socket() as trial:
            trial.bind(("127.0.0.1", 0))
            port = trial.getsockname()[1]
        started = time.perf_counter()
        process = subprocess.Popen(command(port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while True:
                try:
                    if httpx.get(f"http://127.0.0.1:{port}{path}", timeout=1).status_code == 200:
                        break
                except httpx.TransportError:
                    time.sleep(0.01)
                if process.poll() is not None:
                    raise SystemExit(f"{command(port)[0]} ended with status {process.returncode}")
            ready.append(time.perf_counter() - started)
            time.sleep(IDLE_S)
            memory.append(sum(resident_mb(pid) for pid in tree(process.pid)))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    return statistics.median(ready), statistics.median(memory)


def tree(pid: int) -> list[int]:
    """A process and its descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(found for child in children for found in tree(int(child)))]


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
