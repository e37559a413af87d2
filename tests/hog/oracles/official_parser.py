"""The official parser (`hogql-parser` from PyPI), behind a pipe.

Its module imports `posthog.hogql.errors`, a part of PostHog's server that is not published; the name `posthog`
belongs to the SDK here. So the parser runs in a process of its own, which finds `official_stub/` before the SDK.
Run as a script this file is that process: one JSON text per line in, one per line out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

STUB = Path(__file__).parent / "official_stub"
CALLS = {
    "program": "parse_program_json",
    "expression": "parse_expr_json",
    "template": "parse_full_template_string_json",
}


class Refused(Exception):  # noqa: N818 - an answer
    """The official parser does not accept the text."""


class OfficialParser:
    """One running parser; to be closed."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": str(STUB)},
        )

    def parse(self, kind: str, source: str, *, positions: bool = False) -> dict[str, Any]:
        """The official tree of a text. Raises `Refused`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        text = f"F'{source}" if kind == "template" else source
        self.process.stdin.write(json.dumps([CALLS[kind], text, not positions]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the official parser died of {source!r}")
        answer = json.loads(line)
        if "refused" in answer:
            raise Refused(answer["refused"])
        return cast("dict[str, Any]", answer["tree"])

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def _serve() -> None:
    import hogql_parser  # type: ignore[import-not-found, unused-ignore]
    from posthog.hogql import errors  # type: ignore[import-not-found, unused-ignore]

    for line in sys.stdin:
        call, text, internal = json.loads(line)
        try:
            tree = json.loads(getattr(hogql_parser, call)(text, is_internal=internal))
        except errors.BaseHogQLError as error:
            answer = {"refused": f"{type(error).__name__}: {error}"}
        else:
            answer = (
                {"refused": f"{tree['type']}: {tree['message']}"} if tree.get("error") else {"tree": tree}
            )
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve()
