"""Commands of hoglab in processes that are forked from one that has imported it, which is most of what a start costs.

Nothing else differs from ``python -m hoglab``: each has its own session, environment and standard streams, and is
killed as any other process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, Any

from hoglab.demo.server import ChildServer

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["hoglab.app.server", "hoglab.cli.serve", "hoglab.http.server", "alembic.command"]
)


_READ_BY_NEW_PROGRAMS = ("LD_", "MALLOC_", "PYTHON")
"""Beginnings of the names of variables that are read before `main`."""


class _Stream:
    """A file that goes along to the process."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return _detached, (DupFd(self._file.fileno()),)


def _detached(copy: Any) -> int:
    return int(copy.detach())


def _main(
    arguments: list[str],
    environment: dict[str, str],
    folder: str,
    output: int,
    errors: int,
    given: int | None,
) -> None:
    """Become the command."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(output, 1)
    os.dup2(errors, 2)
    if given is not None:
        os.dup2(given, 0)
        sys.stdin = open(0, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
    sys.argv = ["hoglab", *arguments]
    from hoglab.cli import main

    main()


class ForkedProcess:
    """What tests ask of a `subprocess.Popen`."""

    def __init__(
        self,
        arguments: list[str],
        environment: dict[str, str],
        output: IO[bytes],
        errors: IO[bytes],
        folder: Path | None = None,
        given: IO[bytes] | None = None,
    ) -> None:
        streams = (_Stream(output), _Stream(errors), None if given is None else _Stream(given))
        where = str(folder or Path.cwd())
        self._process: BaseProcess = _FORKS.Process(
            target=_main, args=(arguments, environment, where, *streams)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("hoglab", timeout or 0.0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self._process.exitcode is None:
            os.kill(self.pid, number)


class ForkedServer(ChildServer):
    """A `ChildServer` that starts at once, unless its environment is one that only a new program reads."""

    def _launched(self) -> Any:
        own = self._environment.items() - os.environ.items()
        if any(name.startswith(_READ_BY_NEW_PROGRAMS) for name, _ in own):
            return super()._launched()
        return ForkedProcess(self._arguments, self._environment, self._output, self._output)


def run(
    *arguments: str,
    environment: Mapping[str, str] = os.environ,
    folder: Path | None = None,
    timeout_s: float = 180,
    stdin: bytes = b"",
) -> subprocess.CompletedProcess[str]:
    """Run a command, which reads `stdin`, and return what it printed, as `subprocess.run` does."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
    ):
        given.write(stdin)
        given.seek(0)
        process = ForkedProcess(list(arguments), dict(environment), output, errors, folder, given)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            raise
        texts = []
        for stream in (output, errors):
            stream.seek(0)
            texts.append(stream.read().decode())
        return subprocess.CompletedProcess(["hoglab", *arguments], code, *texts)
