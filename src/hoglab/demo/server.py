"""``hoglab serve`` as a child process: the demo uses the server exactly as an operator does."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Protocol

import httpx

START_TIMEOUT_S = 180.0
"""Time to wait for the start, long enough for a busy machine; a server that ended is reported at once."""
STOP_TIMEOUT_S = 60.0


_PR_SET_PDEATHSIG = 1
"""Option of Linux's prctl(2): the signal that a process gets when its parent ends."""


def _parent_death_signal() -> Callable[[int, int], int] | None:
    """Return prctl(2), which is looked up before a fork; None where the system has none."""
    return getattr(ctypes.CDLL(None), "prctl", None)


def _end_with(parent: int, prctl: Callable[[int, int], int] | None) -> None:
    """Let this new process end when its parent does, also by kill -9: it would hold the port for good."""
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)


class ServerError(Exception):
    """The server did not start, or refuses the login; the text is one line."""


class Server(Protocol):
    """Server that the demo is shown on."""

    url: str
    api_key: str
    project_token: str

    def alive(self) -> bool:
        """Return whether the server may still answer."""
        ...

    def last_line(self) -> str:
        """Return the last line that the server printed, as far as it is known."""
        ...


class RunningServer:
    """A server that somebody else started, of which the demo uses project 1."""

    def __init__(self, url: str, api_key: str) -> None:
        """Connect to the server. Raises `ServerError`."""
        self.url = url.rstrip("/")
        self.api_key = api_key
        try:
            answer = httpx.get(
                f"{self.url}/api/projects/1/", headers={"Authorization": f"Bearer {api_key}"}, timeout=30
            )
        except httpx.HTTPError as error:
            raise ServerError(f"{url} does not answer: {error}") from error
        if answer.is_error:
            raise ServerError(f"{url} answered {answer.status_code}: {answer.text}")
        self.project_token: str = answer.json()["api_token"]

    def alive(self) -> bool:
        return True

    def last_line(self) -> str:
        return ""


class ChildServer:
    """A server with known credentials, listening on ``url`` once `start` has returned."""

    def __init__(
        self,
        *,
        data: Path,
        host: str,
        port: int,
        environment: dict[str, str],
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self.url = f"http://{host}:{port}"
        self.api_key = "phx_" + secrets.token_hex(24)
        self.project_token = "phc_" + secrets.token_hex(20)
        self.data = data
        self._arguments = ["serve", "--data", str(data), "--host", host, "--port", str(port)]
        self._environment = {
            **os.environ,
            "HOGLAB_BOOTSTRAP_API_KEY": self.api_key,
            "HOGLAB_BOOTSTRAP_PROJECT_TOKEN": self.project_token,
            **environment,
        }
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the server

    def start(self) -> None:
        """Start the process and wait until it is ready. Raises `ServerError`."""
        self._process = self._launched()
        deadline = time.monotonic() + self._start_timeout_s
        # One client without certificates: to load them takes longer than a request.
        with httpx.Client(base_url=self.url, timeout=1.0, verify=False) as client:  # noqa: S501 - plain HTTP
            while time.monotonic() < deadline:
                if self._process.poll() is not None:
                    raise ServerError(self.last_line() or "the server ended without a word")
                with contextlib.suppress(httpx.TransportError):
                    if client.get("/_readiness").status_code == httpx.codes.OK:
                        return
                time.sleep(0.05)
        self.stop()
        raise ServerError(f"the server was not ready after {self._start_timeout_s:.0f} s: {self.last_line()}")

    def _launched(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "hoglab", *self._arguments],
            env=self._environment,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the demo, which then stops its server in order
            preexec_fn=partial(_end_with, os.getpid(), _parent_death_signal()),
        )

    def login_line(self, screen: str = "") -> str:
        """Return a line with a new login link, as `hoglab login` shows it; ``screen`` is a page below ``/ui``."""
        command = [*(sys.executable, "-m", "hoglab", "login"), "--data", str(self.data)]
        done = subprocess.run(command, capture_output=True, text=True, env=self._environment, check=False)  # noqa: S603
        if done.returncode != 0:
            raise ServerError(done.stderr.strip())
        line = done.stdout.strip()
        return line.replace("/ui/login#", f"/ui/login?next=/ui{screen}#") if screen else line

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Send SIGTERM to the server and wait until it ends."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill(signal.SIGKILL)

    def close(self) -> None:
        """Stop the server for good."""
        self.stop()
        self._output.close()

    def kill(self, number: signal.Signals) -> None:
        """Send a signal and wait for the end of the process; `start` starts it again on the same data."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()

    def wait(self) -> int:
        """Block until the server ends by itself; return its exit status."""
        return self._process.wait() if self._process is not None else 0

    def last_line(self) -> str:
        """Return the last line that the server printed."""
        lines = self.output().strip().splitlines()
        return lines[-1] if lines else ""

    def output(self) -> str:
        """Return all that the server printed so far."""
        self._output.seek(0)
        return self._output.read().decode(errors="replace")
