"""docs/hog.md is up to date, and every example in its chapters does what it says."""

import doctest
import os
import re
import subprocess
import sys
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S
from typer.testing import CliRunner

from hoglab import hog
from hoglab.cli import app
from hoglab.cli.hog import hog_app
from hoglab.functions.documents import language
from hoglab.hog.formatter import format_program

ROOT = Path(__file__).parents[2]
CHAPTERS = (ROOT / "docs/chapters/hog.md").read_text(encoding="utf-8")

# A fenced block with its language and the rest of its first line, the name of a file.
BLOCKS = [
    (found[1], found[2].strip(), found[3])
    for found in re.finditer(r"^```([a-z]+)(.*)\n((?:(?!```).*\n)*)```$", CHAPTERS, re.MULTILINE)
]
FILES = {name.removesuffix(" (mistaken)"): text for language, name, text in BLOCKS if name}
SHOWN = [
    (text, after[2])
    for (language, _, text), after in pairwise(BLOCKS)
    if language == "hog" and after[0] == "text"
]


def test_the_document_is_up_to_date() -> None:
    written = (ROOT / "docs/hog.md").read_text(encoding="utf-8")
    listed = language.listed_parts(ROOT / "tests/hog/oracles")
    assert written == language.reference(CHAPTERS, listed), "run `make docs`"


def test_everything_is_in_it() -> None:
    written = (ROOT / "docs/hog.md").read_text(encoding="utf-8")
    assert "<!--" not in written
    for function in language.functions():
        assert f"\n#### {function.name}\n" in written
    for limit in fields(hog.Limits):
        assert f"`{limit.name}`" in written
    for command in hog_app.registered_commands:
        assert command.callback is not None
        assert f"`hoglab hog {command.name or command.callback.__name__} " in written
    anchors = {language._anchor(title) for title in re.findall(r"^#+ (.+)$", written, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", written)) <= anchors


@pytest.mark.parametrize(("program", "printed"), SHOWN, ids=[text.splitlines()[0][:40] for text, _ in SHOWN])
def test_programs_print_what_is_shown(program: str, printed: str) -> None:
    assert CliRunner().invoke(app, ["hog", "run", "-"], input=program).output == printed


@pytest.mark.parametrize(
    ("program", "name"), [(text, name) for language, name, text in BLOCKS if language == "hog"]
)
def test_programs_are_in_order_unless_they_are_meant_not_to_be(program: str, name: str) -> None:
    found = [finding for finding in hog.check(program) if finding.severity == "error"]
    assert bool(found) == name.endswith("(mistaken)"), found
    assert found or format_program(program) == program


@pytest.mark.parametrize("session", [text for language, _, text in BLOCKS if language == "console"])
def test_commands_print_what_is_shown(session: str, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for command, printed in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session, re.MULTILINE):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.stdout == printed


def test_python_sessions_print_what_is_shown() -> None:
    sessions = "\n".join(text for language, _, text in BLOCKS if language == "python")
    examples = doctest.DocTestParser().get_doctest(sessions, {}, "docs/hog.md", None, None)
    assert len(examples.examples) >= 20
    report: list[str] = []
    doctest.DocTestRunner(verbose=False).run(examples, out=report.append)
    assert not report, "".join(report)
