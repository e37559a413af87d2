"""The demo, really run: a server, the SDK, results and deliveries."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from tests.conftest import free_port
from tests.waiting import PATIENCE_S

from hoglab.demo.run import DemoVerdict, _truth_line
from hoglab.demo.scenario import DAYS, START_BEFORE, Truth
from hoglab.reports.terminal import PlotRow

pytestmark = [pytest.mark.slow]
USERS = 3000


def test_demo_ends_well(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hoglab", "demo", "--users", str(USERS), "--port", str(free_port()), "--exit"],
        capture_output=True,
        text=True,
        timeout=250,
        env={**os.environ, "COLUMNS": "140"},
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("✓") == 4
    assert "✗" not in done.stdout
    assert f"{USERS:,} of {USERS:,} users counted" in done.stdout
    for text in ("Purchase rate", "Revenue per user", "control", "test", "◆", "├", "┤"):
        assert text in done.stdout
    assert list(tmp_path.iterdir()) == []  # the demo leaves nothing behind


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_demo_serves_on_until_it_is_asked_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    port = free_port()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "hoglab",
            "demo",
            "--users",
            "200",
            "--port",
            str(port),
            "--data",
            str(tmp_path / "d"),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "140"},
    )
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:
        printed += line
        if "Still serving" in line:
            break
    (key,) = set(re.findall(r"phx_\w+", printed))
    experiments = f"http://127.0.0.1:{port}/api/projects/1/experiments/"
    with httpx.Client(headers={"Authorization": f"Bearer {key}"}) as client:
        assert client.get(experiments).json()["count"] == 1
        verdict = client.get(f"{experiments}1/results/").json()["verdict"]
    assert verdict["state"] != "running", verdict["headline"]
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == (-number if number == signal.SIGKILL else 0)
    deadline = time.monotonic() + PATIENCE_S
    while answers(port):  # of a demo that was killed nobody waits for the server's end
        assert number == signal.SIGKILL
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("hour", range(24))
def test_the_experiment_of_the_demo_is_over_at_any_hour(hour: int) -> None:
    now = datetime(2026, 11, 27, hour, 59, tzinfo=UTC)
    last_midnight = now.replace(hour=0, minute=0)
    assert last_midnight - (now - START_BEFORE) >= timedelta(days=DAYS)


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/_health").is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize(
    ("bounds", "good", "words"),
    [
        ([], None, "it takes more users"),
        ([(0.1, 0.3)], True, "inside every interval"),
        ([(0.1, 0.3), (0.3, 0.4)], None, "outside an interval, as happens to 5% of intervals"),
    ],
)
def test_that_an_interval_misses_the_truth_is_chance(
    bounds: list[tuple[float, float]], good: bool | None, words: str
) -> None:
    truth = Truth(relative_lift=0.2)
    intervals = [PlotRow("test", low, high, truth=truth.relative_lift) for low, high in bounds]
    mark, sentence = _truth_line(intervals, truth)
    assert mark is good
    assert words in sentence


@pytest.mark.parametrize(
    ("covers", "lost", "is_complete"),
    [([], 0, True), ([True, True], 0, True), ([True, False], 0, True), ([True], 1, False)],
)
def test_the_status_tells_of_lost_counts_and_not_of_chance(
    covers: list[bool], lost: int, is_complete: bool
) -> None:
    intervals = [PlotRow("test", 0.0, 1.0, truth=0.5 if inside else 2.0) for inside in covers]
    for field in ("users", "buyers", "deliveries"):
        counts = {f"{name}_expected": 5 for name in ("users", "buyers", "deliveries")}
        counts |= {"users_counted": 5, "buyers_counted": 5, "deliveries_received": 5}
        counts[f"{field}_{'received' if field == 'deliveries' else 'counted'}"] -= lost
        assert DemoVerdict(1, intervals, **counts, duplicates=0).is_complete is is_complete


def test_demo_keeps_to_itself(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    done = subprocess.run(
        [sys.executable, "-m", "hoglab", "demo", "--data", str(tmp_path), "--exit"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert "is not empty" in done.stderr
