"""``hoglab hog repl``: the language, line by line."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from hoglab.cli.errors import OperatorError
from hoglab.cli.hog.sources import GlobalsOption, located, read_globals, read_object
from hoglab.terminal import echo

if TYPE_CHECKING:
    from hoglab.hog import Session

HELP = """\
Enter Hog: statements or an expression, whose value is shown. Open brackets and texts go on in the next line;
an empty line ends them. Variables and functions stay for the lines that follow.

  :globals            show the globals
  :globals FILE       take the globals from a JSON file
  :variables          show what has been declared
  :docs WORD          show a function, or find functions
  :help               show this
  :quit, Ctrl-D       leave"""

HISTORY_LINES = 1_000
"""Number of lines of history that are kept."""


def repl(globals_file: GlobalsOption = None) -> None:
    """Try the language line by line. `:help` shows the possible input."""
    from hoglab.hog import Session

    session = Session(read_globals(globals_file))
    terminal = sys.stdin.isatty()
    history = _History(session) if terminal else None
    if terminal:
        echo("Hog. :help shows what can be entered, Ctrl-D leaves.")
    try:
        _Loop(session, terminal=terminal).run()
    finally:
        if history is not None:
            history.save()


class _Loop:
    def __init__(self, session: Session, *, terminal: bool) -> None:
        self.session = session
        self.terminal = terminal

    def run(self) -> None:
        while True:
            try:
                source = self.read()
                if source is None or not self.enter(source):
                    return
            except KeyboardInterrupt:
                echo("\ninterrupted")

    def read(self) -> str | None:
        """Return one whole input, which may take several lines; None at the end of the input."""
        from hoglab.hog import is_complete

        lines: list[str] = []
        while True:
            try:
                line = input(("... " if lines else "hog> ") if self.terminal else "")
            except EOFError:
                if self.terminal:
                    echo()
                return "\n".join(lines) if lines else None
            except UnicodeDecodeError:
                echo("this is not UTF-8 text", err=True)
                return ""
            lines.append(line)
            source = "\n".join(lines)
            if source.lstrip().startswith(":") or (not line.strip() and lines) or is_complete(source):
                return source

    def enter(self, source: str) -> bool:
        """Answer one input. Return False if it asks to leave."""
        text = source.strip()
        if not text.startswith(":"):
            if text:
                self.evaluate(source)
            return True
        name, _, rest = text[1:].partition(" ")
        if name in ("quit", "q", "exit"):
            return False
        try:
            self.command(name, rest.strip())
        except OperatorError as error:
            echo(f"hoglab: {error}", err=True)
        return True

    def command(self, name: str, rest: str) -> None:
        from hoglab.cli.hog.docs import docs
        from hoglab.hog.values import repr_value

        if name == "help":
            echo(HELP)
        elif name == "globals" and rest:
            self.session.set_globals(read_object(rest))
        elif name in ("globals", "variables"):
            shown = self.session.globals if name == "globals" else self.session.variables
            for key, value in shown.items():
                echo(f"{key} = {repr_value(value)}")
            if not shown:
                echo(f"no {name}")
        elif name == "docs":
            docs(rest)
        else:
            raise OperatorError(f"there is no :{name}; :help shows what there is")

    def evaluate(self, source: str) -> None:
        from hoglab import hog
        from hoglab.hog.values import repr_value

        try:
            answer = self.session.run(source)
        except hog.HogSourceError as error:
            echo(located("input", source, error.diagnostic()), err=True)
            return
        for diagnostic in answer.diagnostics:
            echo(located("input", source, diagnostic), err=True)
        result = answer.result
        for line in result.printed:
            echo(line)
        if result.error is not None:
            echo(str(result.error), err=True)
        elif result.value is not None:
            echo(repr_value(result.value))


class _History:
    """Editing, history and completion of lines, where Python has readline."""

    def __init__(self, session: Session) -> None:
        self.session = session
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        self.path = Path(state) / "hoglab" / "hog-history"
        self.readline = _readline()
        if self.readline is None:
            return
        with suppress(OSError):  # there is none yet, or it may not be read
            self.readline.read_history_file(self.path)
        self.readline.set_history_length(HISTORY_LINES)
        self.readline.set_completer_delims(" \t\n()[]{},;:+-*/%=<>'\"")
        self.readline.set_completer(self.complete)
        self.readline.parse_and_bind("tab: complete")

    def complete(self, start: str, at: int) -> str | None:
        """Return the `at`-th name that begins with `start`."""
        names = {*self.session.env.functions, *self.session.variables, *self.session.globals}
        matches = sorted(name for name in names if name.startswith(start))
        return matches[at] if at < len(matches) else None

    def save(self) -> None:
        if self.readline is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.readline.write_history_file(self.path)
        except OSError as error:
            echo(f"hoglab: the history cannot be kept in {self.path}: {error.strerror}", err=True)


def _readline() -> ModuleType | None:
    try:
        import readline
    except ImportError:
        return None
    return readline
