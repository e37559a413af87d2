"""A node script that a test talks to: one JSON request per line, one JSON answer per line."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class NodeProcess:
    """Runs a script of this folder until `close`. What the script logs is shown when it fails.

    ``environment`` is added to that of this process.
    """

    def __init__(self, script: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            ["node", str(Path(__file__).with_name(script)), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **(environment or {})},
        )

    def __call__(self, operation: str, **parameters: Any) -> Any:
        """Ask the script to do something and wait for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"operation": operation, **parameters}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the script ended:\n{self.log()}"
        answer = json.loads(line)
        assert "error" not in answer, f"{answer['error']}\n{self.log()}"
        return answer["result"]

    def log(self) -> str:
        """What the script printed on its error stream."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()
