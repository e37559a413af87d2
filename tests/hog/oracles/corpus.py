"""The written corpus: small programs of our own, each with the name of what it shows.

One file of `corpus/` is one topic. A line `-- @ name` starts a program; words behind the name say more:

- `expression` or `template`: what the text is, when it is not a program;
- `error=CODE`: the text is refused, with that code (by the parser, or later by `resolve`);
- `parse-only`: compiles, but cannot be run alone (it needs a host, or never ends).

The text runs up to the next such line, without its last line break.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "corpus"
KINDS = ("program", "expression", "template")

GLOBALS: dict[str, Any] = json.loads((FOLDER / "globals.json").read_text())
"""What the programs of the corpus may read."""

_HEADER = re.compile(r"^-- @ (?P<name>\S+)(?P<words>[^\n]*)\n", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """One text of the corpus. `error` is the code of the refusal, or None for a text that compiles."""

    name: str
    kind: str
    source: str
    error: str | None = None
    runs: bool = True

    def __str__(self) -> str:
        return self.name


def _cases(file: Path) -> list[Case]:
    text = file.read_text()
    headers = list(_HEADER.finditer(text))
    found = []
    for header, following in zip(headers, [*headers[1:], None], strict=True):
        source = text[header.end() : following.start() if following else len(text)]
        words = header["words"].split()
        kind, error, runs = "program", None, True
        for word in words:
            if word in KINDS:
                kind = word
            elif word.startswith("error="):
                error, runs = word.removeprefix("error="), False
            elif word == "parse-only":
                runs = False
            else:
                raise ValueError(f"{file.name}: `{word}` says nothing about {header['name']}")
        found.append(Case(f"{file.stem}/{header['name']}", kind, source.removesuffix("\n"), error, runs))
    return found


CASES: tuple[Case, ...] = tuple(case for file in sorted(FOLDER.glob("*.hog")) for case in _cases(file))
"""Every text, in a fixed order."""

RUNNABLE: tuple[Case, ...] = tuple(case for case in CASES if case.runs)
"""The texts that compile and can be run with `GLOBALS` alone."""
