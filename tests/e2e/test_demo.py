"""The demo, really run: a server, the SDK, results and deliveries."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.conftest import free_port
from tests.waiting import PATIENCE_S

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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
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
    found = httpx.get(
        f"http://127.0.0.1:{port}/api/projects/1/experiments/", headers={"Authorization": f"Bearer {key}"}
    )
    assert found.json()["count"] == 1
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/_health")


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
