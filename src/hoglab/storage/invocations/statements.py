"""SQL statements in files of their own, each with a name and a comment.

A statement follows a line ``-- name: NAME``, up to the next such line. ``{PART}`` in it stands for the text after the
line ``-- part: PART`` further up in the file. Lines that begin with ``--`` are comments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_NAME, _PART, _COMMENT = "-- name: ", "-- part: ", "--"


def read_statements(path: Path) -> dict[str, str]:
    """Return the statements of a file by name, without comments and with their parts. Raises `ValueError`."""
    statements: dict[str, str] = {}
    parts: dict[str, str] = {}
    for header, lines in _sections(path.read_text("utf-8")):
        text = "\n".join(lines).strip()
        for part, replacement in parts.items():
            text = text.replace(f"{{{part}}}", replacement)
        kind, name = header[: len(_NAME)], header[len(_NAME) :].strip()
        if not text or name in statements or name in parts:
            raise ValueError(f"{path.name}: {name} is empty, or comes twice")
        (statements if kind == _NAME else parts)[name] = text
    return statements


def _sections(text: str) -> list[tuple[str, list[str]]]:
    """Return headers, each with the lines up to the next header that are no comments."""
    sections: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith((_NAME, _PART)):
            sections.append((line, []))
        elif sections and not line.startswith(_COMMENT):
            sections[-1][1].append(line)
    return sections
