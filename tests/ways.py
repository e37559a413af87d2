"""The modules that a request passes through, recorded while it does, and those that documents list."""

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
DOCUMENTS = Path(__file__).parents[1] / "docs"


class Trace:
    """The modules below a folder of the product in which something was called while ``is_on``."""

    def __init__(self, folder: Path) -> None:
        self.is_on = False
        self.modules: set[str] = set()
        self.of_threads: dict[int, set[str]] = {}
        """The modules of each thread, by its identifier."""
        self._folder = folder

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        name = frame.f_code.co_filename
        if self.is_on and event == "call" and name.startswith(f"{self._folder}/"):
            module = str(Path(name).relative_to(self._folder))
            self.modules.add(module)
            self.of_threads.setdefault(threading.get_ident(), set()).add(module)

    def of_request(self) -> set[str]:
        """Return the modules of the event loop and of the threads of handlers: what a request itself passes through."""
        handlers = {thread.ident for thread in threading.enumerate() if thread.name.startswith("hoglab-http")}
        threads = [self.of_threads.get(ident or 0, set()) for ident in (threading.get_ident(), *handlers)]
        return set().union(*threads)

    def clear(self) -> None:
        """Forget what was recorded."""
        self.modules.clear()
        self.of_threads.clear()


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


def listed(heading: str, document: str = "architecture.md") -> set[str]:
    """Return the modules that a section of a document names: of its tables, those in the first column alone."""
    sections = re.split(r"^#+ ", (DOCUMENTS / document).read_text(), flags=re.MULTILINE)
    (text,) = (part for part in sections if part.startswith(f"{heading}\n"))
    rows = re.findall(r"^\|([^|]+)\|", text, re.MULTILINE)
    modules = set(re.findall(r"`([a-z_]+/[a-z_/]+\.py|[a-z_]+\.py)`", "\n".join(rows) if rows else text))
    assert modules
    return modules
