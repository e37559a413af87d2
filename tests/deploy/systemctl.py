"""Units of systemd as plain processes: ``python -m tests.deploy.systemctl start|stop|restart|kill|enable UNIT…``.

It reads the unit files in the folder ``UNITS`` and runs their ExecStart with their EnvironmentFiles; who is meant to
run them, and what they may not do, is systemd's business. Nothing is started again by itself.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ.get("UNITS", "."))
STOP_S = 60


def setting(unit: str, name: str) -> list[str]:
    """All values of a setting of a unit; ``%i`` is what is behind the @ of its name."""
    base, _, instance = unit.removesuffix(".service").partition("@")
    lines = (FOLDER / (f"{base}@.service" if instance else f"{base}.service")).read_text().splitlines()
    return [line.partition("=")[2].replace("%i", instance) for line in lines if line.startswith(f"{name}=")]


def start(unit: str) -> None:
    """Start it, and do not wait for what it does."""
    environment = {"PATH": os.environ["PATH"]}
    for file in setting(unit, "EnvironmentFile"):
        lines = [line for line in Path(file).read_text().splitlines() if line and not line.startswith("#")]
        environment |= dict(line.split("=", 1) for line in lines)
    [command] = setting(unit, "ExecStart")
    with (FOLDER / f"{unit}.log").open("ab") as log:
        process = subprocess.Popen(
            shlex.split(command),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    (FOLDER / f"{unit}.pid").write_text(str(process.pid))


def is_alive(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def end(unit: str, number: signal.Signals) -> None:
    """Send a signal that ends it, if it runs, and wait for that."""
    file = FOLDER / f"{unit}.pid"
    if not file.exists() or not is_alive(process_id := int(file.read_text())):
        return
    os.kill(process_id, number)
    deadline = time.monotonic() + STOP_S
    while is_alive(process_id):
        if time.monotonic() > deadline:
            os.kill(process_id, signal.SIGKILL)
        time.sleep(0.05)


def main() -> None:
    verb, *rest = sys.argv[1:]
    for unit in [word for word in rest if not word.startswith("--")]:
        if verb in ("stop", "restart"):
            end(unit, signal.SIGTERM)
        if verb == "kill":
            end(unit, signal.SIGKILL)
        if verb in ("start", "restart", "enable"):
            start(unit)


if __name__ == "__main__":
    main()
