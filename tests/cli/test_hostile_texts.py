"""Texts of strangers on the operator's terminal: no command and no log lets them act."""

from __future__ import annotations

import ast
import io
import json
import re
import unicodedata
from pathlib import Path

import pytest
import structlog
from rich.table import Table
from tests.cli.test_functions import Place, place  # noqa: F401 - a fixture
from tests.waiting import wait_for
from typer.testing import CliRunner

import hoglab
from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.accounts.sessions.service import Browser, SessionService
from hoglab.cli import app
from hoglab.http.logs import configure_logging
from hoglab.storage.database import Database
from hoglab.terminal import line, plain, plain_console

HOSTILE = "a\x1b]0;pwned\x07b\x1b[2Jc\x9b31md\x9d0;x\x9ce\u202ef\u2066g\x00h\x08i\x7fj\u2028k\rl\x1b]8;;http://e.test\x1b\\m"
ROOT = Path(hoglab.__file__).parent


def assert_harmless(text: str) -> None:
    strange = {
        character
        for character in text
        if character not in "\n\t"
        and (
            unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
            or unicodedata.bidirectional(character)
            in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        )
    }
    assert strange == set(), ascii(text)


def test_every_character_that_acts_is_shown() -> None:
    for number in (*range(0x3000), *range(0xD000, 0x10000), *range(0xE0000, 0xE0100)):
        character = chr(number)
        assert_harmless(plain(character))
        assert "\n" not in line(character)
    assert plain("ü 🦔 שלום\n\tx") == "ü 🦔 שלום\n\tx"


def test_names_with_characters_that_nobody_sees_look_different() -> None:
    seen = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2}  # signs drawn around numbers
    unseen = [number for number in range(0x10000) if unicodedata.category(chr(number)) == "Cf"]
    for number in set(unseen) - seen:
        name = f"control{chr(number)}"
        assert plain(name) == line(name) == f"control\\u{number:04x}"
        assert json.loads(f'"{plain(name)}"') == name
    assert {0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF} <= set(unseen)


def test_json_stays_the_same() -> None:
    for ascii_only in (True, False):
        text = json.dumps({HOSTILE: [HOSTILE]}, ensure_ascii=ascii_only)
        assert json.loads(plain(text)) == {HOSTILE: [HOSTILE]}
        assert_harmless(plain(text))


@pytest.mark.parametrize("text", [HOSTILE, "[link=http://e.test]x[/link]", "[/bold]", "[red]x", "\\[x]"])
def test_tables_show_texts_as_they_are(text: str) -> None:
    stream = io.StringIO()
    console = plain_console(file=stream, width=400, force_terminal=True, color_system=None)
    table = Table("name", title=text)
    table.add_row(text)
    console.print(table)
    console.print(text)
    assert_harmless(re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()))
    assert "]8;" not in re.sub(r"\\u001b\]8;", "", stream.getvalue())
    if text != HOSTILE:
        assert stream.getvalue().count(text) == 3


def written_by(path: Path) -> set[str]:
    """Ways in which a module writes to a standard stream without `hoglab.terminal`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            direct = name in ("print", "Console", "typer.secho", "click.echo", "click.secho", "typer.echo")
            if direct or re.fullmatch(r"sys\.(__)?std(out|err)(__)?(\.buffer)?\.write(lines)?", name):
                found.add(f"{name} in {path.relative_to(ROOT)}")
    return found


def test_commands_write_by_one_module_alone() -> None:
    rooms = [path for room in ("cli", "reports", "demo") for path in (ROOT / room).rglob("*.py")]
    found = set().union(*map(written_by, rooms))
    assert found == {"sys.stdout.buffer.write in cli/openapi.py"}  # a document of ours
    assert written_by(ROOT / "terminal.py") >= {"click.echo in terminal.py"}, "the search finds what there is"


def test_lists_of_what_is_stored(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    database = Database.open(data / "hoglab.db")
    accounts = AccountService(database)
    bootstrap(database, accounts)
    owner = accounts.owner_id()
    label = "\x1b]0;pwned\x07\x9b31m\u202e\u2066\x7f"
    accounts.create_key(owner, label, ["*"])
    accounts.create_project(accounts.projects()[0].organization_id, label)
    sessions = SessionService(database, accounts)
    sessions.log_in(sessions.new_link(owner), Browser("\x1b[31m", HOSTILE))
    database.dispose()
    for command in (
        ["keys", "list"],
        ["sessions", "list"],
        ["projects", "list"],
        ["projects", "list", "--json"],
    ):
        done = CliRunner().invoke(app, [*command, "--data", str(data)], env={"COLUMNS": "300"})
        assert done.exit_code == 0, done.output
        assert_harmless(done.output)
        assert "pwned" in done.output


def test_functions_and_their_logs(place: Place) -> None:  # noqa: F811 - the fixture
    place.columns = 400
    place.create("http://127.0.0.1:1/", name=HOSTILE.replace("\0", ""), hog="print(event.properties.text)")
    function = place.call("GET", "/hog_functions/")["results"][0]
    place.capture(1, text=HOSTILE)
    wait_for(lambda: "pwned" in place.run("logs", function["id"]))
    for command in (["list"], ["list", "--json"], ["logs", function["id"]]):
        shown = place.run(*command)
        assert "pwned" in shown
        assert_harmless(shown)


@pytest.mark.parametrize("form", ["console", "json"])
def test_the_log(form: str) -> None:
    stream = io.StringIO()
    configure_logging("info", form, stream)  # type: ignore[arg-type]
    try:
        logger = structlog.get_logger()
        logger.info("request", path=f"/nothing{HOSTILE}", agent=f"x\nforged line {HOSTILE}", **{HOSTILE: 1})
        logger.error(HOSTILE, items=[HOSTILE], exc_info=RuntimeError(HOSTILE))
    finally:
        structlog.reset_defaults()
    assert_harmless(stream.getvalue())
    assert not any(entry.startswith("forged") for entry in stream.getvalue().splitlines())
