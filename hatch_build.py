"""Building a wheel or an sdist: refused without the files of the web UI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGE = "src/hoglab/ui/static/index.html"


class UiIsThere(BuildHookInterface):  # type: ignore[type-arg]
    """Stops a build that would leave the UI out."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Raises `RuntimeError` without the built page; an editable installation may do without."""
        if version != "editable" and not (Path(self.root) / PAGE).is_file():
            raise RuntimeError(f"{PAGE} is missing: run `make ui`")
