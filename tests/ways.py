"""The modules that something passes through, followed while it does, and those that docs/architecture.md lists."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import hoglab

ROOT = Path(hoglab.__file__).parent
DOCUMENT = Path(__file__).parents[1] / "docs" / "architecture.md"


class Trace:
    """The modules below a folder of the product in which something was called while ``is_on``."""

    def __init__(self, folder: Path) -> None:
        self.is_on = False
        self.modules: set[str] = set()
        self._folder = folder

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        name = frame.f_code.co_filename
        if self.is_on and event == "call" and name.startswith(f"{self._folder}/"):
            self.modules.add(str(Path(name).relative_to(self._folder)))


@contextmanager
def tracing(folder: str = "") -> Iterator[Trace]:
    """Follows this thread, and those that begin meanwhile."""
    trace = Trace(ROOT / folder)
    before, before_in_threads = sys.getprofile(), threading.getprofile()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        sys.setprofile(before)
        threading.setprofile(before_in_threads)


def listed(section: str) -> set[str]:
    """The modules in the first column of a section's tables."""
    sections = re.split(r"^## ", DOCUMENT.read_text(), flags=re.MULTILINE)
    (text,) = (part for part in sections if part.startswith(f"{section}\n"))
    cells = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([a-z_/]+\.py)`", cell)}
