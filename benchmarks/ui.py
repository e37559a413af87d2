"""What the web UI costs: bytes, requests, jumps and times of the demo's results, beside ``/api/docs/`` of the same run.

Chromium loads both pages of one server in turn, on a processor made four times slower and a line of 10 Mbit/s with
40 ms, without and with a cache. Times are medians and read as ratios; bytes, requests and jumps depend on no machine,
and beyond their limits the benchmark fails. Needs node and Chromium, and says so where they are missing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NODE_PACKAGES = HERE.parent / "tests/node/node_modules"
SCRIPT_LIMIT = 45_000
STYLE_LIMIT = 12_000
REQUEST_LIMIT = 8
SHIFT_LIMIT = 0.02
COLD_LIMIT_MS, WARM_LIMIT_MS, DETAILS_LIMIT_MS, INPUT_LIMIT_MS = 1000, 400, 100, 100
ROW_LIMIT = 120
STARTED_S = 300.0
LINK = re.compile(r"Open (http://\S+/ui/login\S*#t=[A-Za-z0-9_-]+)")
TOKEN = re.compile(r"project token (phc_\w+)")


def missing() -> str | None:
    """Why pages cannot be loaded here; None when they can."""
    if shutil.which("node") is None:
        return "node is not installed"
    if not (NODE_PACKAGES / "playwright-core").is_dir():
        return "playwright-core is not installed (make setup installs it)"
    return None if browser() else "Chromium is not installed"


def browser() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


@contextlib.contextmanager
def demo(users: int) -> Iterator[dict[str, str]]:
    """The demo, while it goes on serving: its address, a link to log in, and the project's token."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    command = [sys.executable, "-m", "hoglab", "demo", "--users", str(users), "--port", str(port)]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + STARTED_S
            while True:
                said.seek(0)
                text = said.read().decode(errors="replace")
                link, token = LINK.search(text), TOKEN.search(text)
                if link and token and "Still serving" in text:
                    break
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"the demo did not start:\n{text}")
                time.sleep(0.2)
            yield {"url": f"http://127.0.0.1:{port}", "link": link.group(1), "token": token.group(1)}
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)


def median(runs: list[dict[str, Any]], name: str) -> float:
    return statistics.median(float(each[name]) for each in runs if each[name] is not None)


def times(label: str, page: list[dict[str, Any]], reference: list[dict[str, Any]], limit_ms: float) -> None:
    """Print when a page begins to show something, when its largest part is there, and when all is."""
    for words, name in (
        ("first contentful paint", "first"),
        ("largest contentful paint", "largest"),
        ("complete", "complete"),
    ):
        ours, theirs = median(page, name), median(reference, name)
        limit = f"   limit {limit_ms:g} ms on an idle machine" if name == "largest" else ""
        print(
            f"{label}, {words:24} results {ours:5.0f} ms   /api/docs/ {theirs:5.0f} ms   "
            f"ratio {ours / theirs:.2f}{limit}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    smoke = parser.parse_args().smoke
    if reason := missing():
        print(f"left out: {reason}")
        return 0
    with demo(300 if smoke else 20_000) as given:
        asked = {**given, "experiment": 1, "runs": 1 if smoke else 7, "seconds": 1 if smoke else 10}
        command = ["node", str(HERE / "ui_pages.mjs"), str(NODE_PACKAGES), str(browser()), json.dumps(asked)]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    cold, warm, docs = found["results"], found["resultsWarm"], found["docs"]
    times("cold", cold, docs, COLD_LIMIT_MS)
    times("warm", warm, found["docsWarm"], WARM_LIMIT_MS)
    print(
        f"details of a metric, from their answer to the page  {statistics.median(found['details']):.0f} ms   "
        f"limit {DETAILS_LIMIT_MS} ms"
    )
    live = sorted(found["live"])
    print(
        f"input during 2,000 events a second: median {statistics.median(live):.0f} ms, "
        f"worst of {len(live)} {live[-1]:.0f} ms   limit {INPUT_LIMIT_MS} ms"
    )
    fixed = (
        ("JavaScript, bytes as sent", cold[0]["script"], SCRIPT_LIMIT),
        ("CSS, bytes as sent", cold[0]["style"], STYLE_LIMIT),
        ("requests for data", cold[0]["requests"], REQUEST_LIMIT),
        ("layout shift", max(each["shift"] for each in (*cold, *warm)), SHIFT_LIMIT),
        ("rows of live events in the page", found["rows"], ROW_LIMIT),
    )
    failed = False
    ours, theirs = cold[0]["all"], docs[0]["all"]
    print(f"everything, bytes as sent: results {ours:,}   /api/docs/ {theirs:,}   ratio {ours / theirs:.2f}")
    for label, value, limit in fixed:
        number = f"{value:.3f}" if isinstance(value, float) else f"{value:,}"
        print(f"{label:32} {number}   limit {limit:,}{'   EXCEEDED' if value > limit else ''}")
        failed |= value > limit
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
