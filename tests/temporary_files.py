"""Pytest plugin: temporary files of a run in memory, where there is enough of it.

Tests make and remove hundreds of thousands of small files. On a disk that costs more than most of the tests do: a
database of PostgreSQL, copied from a template, takes 0.4 s of processor time on ext4 with `discard` and 0.02 s in
memory. Tests of the target ``faults`` keep to the disk, for they are about what a disk does. ``TMPDIR`` decides where
it is set.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")  # noqa: S108
ROOM_BYTES = 6 << 30
"""Free bytes that a file system in memory must have. The files of a run are below a third of it."""
ON_DISK = "faults"
"""The target whose files stay on the disk."""


def room_bytes(folder: Path = MEMORY) -> int:
    """Return how many bytes fit on a file system in memory: what it may take, and what the machine has free."""
    try:
        free = shutil.disk_usage(folder).free
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    available_kb = next((int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), 0)
    return min(free, available_kb << 10)


def use_memory() -> None:
    """Let this process and all that it starts keep temporary files in memory, where there is room for them."""
    if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and room_bytes() >= ROOM_BYTES:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # is asked for again


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the folder of temporary files."""
    if config.getoption("--target") != ON_DISK:
        use_memory()


def pytest_report_header() -> str:
    """Return the line that names the folder."""
    return f"temporary files: {tempfile.gettempdir()}"
