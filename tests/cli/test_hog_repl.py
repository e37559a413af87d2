"""``hoglab hog repl``: from a pipe, and at a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.forked import run
from tests.waiting import PATIENCE_S

REPL = ("hog", "repl")
COMMAND = [sys.executable, "-m", "hoglab", *REPL]
AS_FROM_A_SHELL = ["setsid", "--ctty", "env", "--default-signal=INT", *COMMAND]
"""Ctrl-C reaches it, even where our own process ignores it."""


def test_from_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "globals.json").write_text('{"event": {"n": 5}}')
    (tmp_path / "other.json").write_text('{"event": {"n": 6}}')
    lines = [
        "let a := event.n",
        "fun double(x) {",
        "  return x * 2",
        "}",
        "double(a)",
        "let b = 1",
        "throw Error('oops')",
        f":globals {tmp_path / 'other.json'}",
        "event.n",
        ":variables",
        ":nothing",
        ":globals missing.json",
        ":docs upper",
        ":help",
        "print('last')",
        ":quit",
        "print('never')",
    ]
    done = run(
        *REPL,
        "--globals",
        str(tmp_path / "globals.json"),
        stdin="\n".join(lines).encode(),
        timeout_s=PATIENCE_S,
    )
    assert done.returncode == 0
    printed = done.stdout.splitlines()
    assert printed[:4] == ["10", "6", "a = 5", "double = fn<double(1)>"]
    assert printed[-1] == "last"
    assert "upper(text: string|null) -> string|null" in printed
    for words in (
        "input:1:7: error:",
        "Error('oops') (line 1",
        "there is no :nothing",
        "missing.json cannot be read",
    ):
        assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_end_of_input_and_text_that_is_none() -> None:
    for given in (b"", b"1 +", b"\xff\xfe\n", b"fun f() {\n\n1"):
        done = run(*REPL, stdin=given, timeout_s=PATIENCE_S)
        assert "Traceback" not in done.stderr, given


class Terminal:
    """A program at a terminal of its own."""

    def __init__(self, state: Path) -> None:
        self.master, slave = pty.openpty()
        environment = {**os.environ, "XDG_STATE_HOME": str(state), "TERM": "dumb", "COLUMNS": "200"}
        self.process = subprocess.Popen(
            AS_FROM_A_SHELL, stdin=slave, stdout=slave, stderr=slave, env=environment
        )
        os.close(slave)
        self.seen = ""

    def wait_for(self, text: str) -> str:
        """Reads until the text appears; what came before it, and it."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.seen:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                pytest.fail(f"{text!r} did not appear in {self.seen!r}")
            try:
                self.seen += os.read(self.master, 4096).decode()
            except OSError:  # the other end is closed
                pytest.fail(f"{text!r} did not appear in {self.seen!r}")
        before, _, self.seen = self.seen.partition(text)
        return re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", before + text)

    def enter(self, text: str) -> None:
        os.write(self.master, text.encode())

    def interrupt(self) -> None:
        """Presses Ctrl-C while the program waits for a key.

        Python's readline looks at signals only when one ends its wait, so one that comes between two keys is
        noticed with the next key.
        """
        stat = Path(f"/proc/{self.process.pid}/stat")
        deadline = time.monotonic() + PATIENCE_S
        while stat.read_text().rpartition(")")[2].split()[0] != "S":
            if time.monotonic() > deadline:
                pytest.fail("the program does not come to rest")
            time.sleep(0.005)
        self.enter("\x03")


def test_at_a_terminal(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    try:
        terminal.wait_for("hog> ")
        terminal.enter("let a := [\n")
        terminal.wait_for("... ")
        terminal.enter("1, 2]\n")
        terminal.wait_for("hog> ")
        terminal.enter("length(a) + 40\n")
        terminal.wait_for("42")
        terminal.wait_for("hog> ")
        terminal.enter("a half-written line")
        terminal.wait_for("a half-written line")
        terminal.interrupt()
        terminal.wait_for("interrupted")
        terminal.wait_for("hog> ")
        terminal.enter("length(arrayRev\t")  # completion
        terminal.wait_for("erse")
        terminal.enter("([1, 2, 3]))\n")
        terminal.wait_for("3\r\n")
        terminal.wait_for("hog> ")
        terminal.enter("\x04")  # Ctrl-D
        assert terminal.process.wait(PATIENCE_S) == 0
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.master)
    history = (tmp_path / "hoglab" / "hog-history").read_text()
    assert "length(a) + 40" in history
