"""The pages of reference in ``docs/reference``: up to date, and complete."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hoglab.cli import app
from hoglab.cli.reference import commands_page, pages
from hoglab.settings import OF_CLIENTS, Settings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/reference"
DOCUMENTS = sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md")})


def registered(group: typer.Typer, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words that call each command and group, as the program registers them."""
    for command in group.registered_commands:
        name = command.name or str(getattr(command.callback, "__name__", "")).replace("_", "-")
        yield (*path, name)
    for below in group.registered_groups:
        assert below.typer_instance is not None
        name = str(below.name)
        yield (*path, name)
        yield from registered(below.typer_instance, (*path, name))


COMMANDS = sorted(registered(app))


def test_the_pages_are_up_to_date() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    assert written == pages(), "run make docs"


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_command_and_every_option_of_its_help_stand_in_the_page(path: tuple[str, ...]) -> None:
    heading = rf"^#+ hoglab {' '.join(path)}$"
    (section,) = re.findall(rf"{heading}\n(.*?)(?=^#|\Z)", commands_page(), re.MULTILINE | re.DOTALL)
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "300", "TERM": "dumb"}).stdout
    options = set(re.findall(r"^│[ *]+(--[a-z-]+)", shown, re.MULTILINE))
    assert "--help" in options
    assert {option for option in options - {"--help"} if f"`{option}" not in section} == set()


def test_every_setting_stands_in_the_page_once_with_its_default() -> None:
    rows = re.findall(
        r"^\| `(HOGLAB_\w+)` \| (.+?) \| (.+?) \| (.+?) \|$", pages()["settings.md"], re.MULTILINE
    )
    assert [name for name, *_ in rows] == [f"HOGLAB_{name.upper()}" for name in Settings.model_fields]
    defaults = {name: default for name, default, *_ in rows}
    assert defaults["HOGLAB_DATABASE_URL"] == "files in the data directory"
    assert defaults["HOGLAB_EVENT_LOG_MAX_BYTES"] == "`2147483648` (2 GiB)"
    for name, field in Settings.model_fields.items():
        if field.default in (None, ()):
            assert re.search(r"\. Default: [^.]+\.$|\. Default: `[^`]+`[^.]*\.$", field.description or ""), (
                name
            )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_name_only_settings_and_commands_that_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    settings = {f"HOGLAB_{name.upper()}" for name in Settings.model_fields} | set(OF_CLIENTS)
    assert set(re.findall(r"\bHOGLAB_(?!TEST_)[A-Z_]+[A-Z]\b", text)) <= settings
    named = {tuple(call.split()) for call in re.findall(r"`hoglab ([a-z][a-z-]*(?: [a-z][a-z-]*)*)", text)}
    for words in named:
        assert words[:1] in COMMANDS, f"hoglab {' '.join(words)}"
        if (below := {path for path in COMMANDS if path[:-1] == words[:1]}) and len(words) > 1:
            assert words[:2] in below, f"hoglab {' '.join(words)}"
