"""``hoglab login`` and ``hoglab sessions``, beside a running server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from tests.cli.test_operators import assert_one_clear_line, hoglab
from tests.conftest import StartServer, free_port
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow


def test_a_link_logs_in_once_and_the_session_is_listed_and_ended(start_server: StartServer) -> None:
    server = start_server()
    data = ("--data", str(server.data))
    printed = hoglab("login", *data)
    link = re.fullmatch(
        r"Open (http://\S+)/ui/login#t=(\S{43})   \(once, within 15 minutes\)\n", printed.stdout
    )
    assert link is not None
    assert (printed.stderr, link[1]) == ("", server.url)
    with httpx.Client(base_url=server.url) as browser:
        opened = browser.post("/api/session/", json={"token": link[2]})
        assert opened.status_code == 201
        assert httpx.post(f"{server.url}/api/session/", json={"token": link[2]}).status_code == 401
        assert browser.get("/api/projects/1/").status_code == 200
        listed = hoglab("sessions", "list", *data).stdout
        assert opened.json()["id"] in listed
        assert "owner@localhost" in listed
        assert hoglab("sessions", "revoke", opened.json()["id"], *data).returncode == 0
        deadline = time.monotonic() + PATIENCE_S  # a change by another process is noticed soon
        while browser.get("/api/projects/1/").status_code != 401:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert hoglab("sessions", "list", *data).stdout == ""
    assert_one_clear_line(hoglab("sessions", "revoke", opened.json()["id"], *data), "hoglab sessions list")
    assert_one_clear_line(hoglab("login", "--user", "nobody@example.com", *data), "nobody@example.com")
    server.stop()
    port = str(free_port())
    without = hoglab("login", *data, HOGLAB_PORT=port)
    assert "no server is running" in without.stderr
    assert without.stdout.startswith(f"Open http://127.0.0.1:{port}/ui/login#t=")


def test_without_the_ui_there_is_no_link(tmp_path: Path) -> None:
    """Neither at the first start nor from the command."""
    data, port = str(tmp_path / "data"), free_port()
    command = [sys.executable, "-m", "hoglab", "serve", "--data", data, "--port", str(port)]
    with subprocess.Popen(
        command,
        env={**os.environ, "HOGLAB_UI": "false"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert any("is serving on" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=PATIENCE_S)
    assert "phx_" in printed
    assert "The web UI is off (HOGLAB_UI=false)." in printed
    assert "/ui/login" not in printed
    assert_one_clear_line(hoglab("login", "--data", data, HOGLAB_UI="false"), "the web UI is off")
