"""The pages of reference for operators, as Markdown: every setting, and every command.

    python -m hoglab.cli.reference docs/reference

Both follow from what runs: `hoglab.settings.Settings`, and the commands of `hoglab.cli.app`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin

import annotated_types
import typer

from hoglab import cli
from hoglab.settings import OF_CLIENTS, PREFIX, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic.fields import FieldInfo

SETTINGS_INTRODUCTION: Final = """\
# Settings

Settings are environment variables. Options of a [command](commands.md) override them. At its start a server warns of
variables `HOGLAB_…` that it does not know, and refuses values that it cannot use.

More about [PostgreSQL](../operate.md#postgresql), [ClickHouse](../operate.md#clickhouse), [Kafka](../operate.md#kafka),
[roles of processes](../operate.md#several-processes), [retention](../operate.md#retention) and
[limits of functions](../delivery.md).
"""
COMMANDS_INTRODUCTION: Final = """\
# Commands

Every command shows this text with `--help`. An option that is left out has the value of its [setting](settings.md), if
it has one.
"""
DEFAULT: Final = " Default: "
"""Begin of the sentence of a description that says what holds without a value."""
UNITS: Final = {"s": "seconds", "bytes": "bytes", "days": "days"}
"""Units by the last word of a setting's name."""
BINARY: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
KINDS: Final = {int: "N", float: "N", str: "TEXT", Path: "PATH"}
"""Placeholders for the value of an option without one of its own, by type."""


def settings_page() -> str:
    """Return the page of all settings: the name, default, unit and limits, and meaning of each."""
    rows = [
        (f"`{PREFIX}{name.upper()}`", _default(field), _values(name, field), _without_default(field))
        for name, field in Settings.model_fields.items()
    ]
    clients = "\n".join(f"- `{name}`: {description}" for name, description in sorted(OF_CLIENTS.items()))
    table = _table(("Variable", "Default", "Value", "Meaning"), rows)
    return f"{SETTINGS_INTRODUCTION}\n{table}\n\nCommands that are clients of a server read:\n\n{clients}\n"


def commands_page() -> str:
    """Return the page of all commands: the usage, text, arguments and options of each."""
    root = typer.main.get_command(cli.app)
    sections = "\n\n".join(_command(path, command) for path, command in commands(root))
    return f"{COMMANDS_INTRODUCTION}\n{sections}\n"


def commands(command: Any, path: Sequence[str] = ("hoglab",)) -> Iterator[tuple[Sequence[str], Any]]:
    """Yield every command and group of commands below one, itself included, with the words that call it."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from commands(below, (*path, name))


def _default(field: FieldInfo) -> str:
    value = field.default
    if value in (None, ()):
        return (field.description or "").rpartition(DEFAULT)[2].removesuffix(".")
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`{_binary(value)}"


def _without_default(field: FieldInfo) -> str:
    """Return the description of a setting, without the default that its last sentence names."""
    return (field.description or "").partition(DEFAULT)[0]


def _binary(value: object) -> str:
    """Return a size in the largest binary unit that holds it without a rest, in brackets; else nothing."""
    if not isinstance(value, int):
        return ""
    return next((f" ({value // size:,} {unit})" for size, unit in BINARY if value and value % size == 0), "")


def _values(name: str, field: FieldInfo) -> str:
    """Return what may be set: the unit, or the kind of value, and its limits."""
    kind = _kind(field.annotation)
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    if kind is bool:
        return "`true`, `false`"
    if get_origin(kind) is tuple:
        return "texts, comma-separated"
    unit = UNITS.get(name.rsplit("_", 1)[-1]) if kind in (int, float) else None
    noun = unit or {int: "number", float: "number", Path: "path"}.get(kind, "text")
    return ", ".join((noun, *_limits(field.metadata)))


def _limits(metadata: Sequence[object]) -> Iterator[str]:
    for mark in metadata:
        match mark:
            case annotated_types.Gt(gt=bound):
                yield f"above {bound:,}"
            case annotated_types.Ge(ge=bound):
                yield f"at least {bound:,}"
            case annotated_types.Le(le=bound):
                yield f"at most {bound:,}"
            case annotated_types.MinLen(min_length=length):
                yield f"at least {length} characters"


def _kind(annotation: Any) -> Any:
    """Return a type without the `None` that it may be besides."""
    if get_origin(annotation) is UnionType:
        return next(kind for kind in get_args(annotation) if kind is not type(None))
    return annotation


def _command(path: Sequence[str], command: Any) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and not param.hidden]
    below = getattr(command, "commands", {})
    usage = " ".join((*path, *(_placeholder(param) for param in arguments), *(["COMMAND"] if below else [])))
    parts = ["#" * max(len(path), 2) + " " + " ".join(path), _text(command.help or "")]
    parts.append(f"```text\n{usage}{' [OPTIONS]' if options else ''}\n```")
    if arguments:
        parts.append(
            _table(("Argument", ""), [(f"`{_metavar(param)}`", _meaning(param)) for param in arguments])
        )
    if options:
        parts.append(
            _table(("Option", ""), [(f"`{_spelling(param)}`", _meaning(param)) for param in options])
        )
    return "\n\n".join(part for part in parts if part)


def _placeholder(param: Any) -> str:
    name = _metavar(param) + ("…" if param.nargs == -1 else "")
    return name if param.required else f"[{name}]"


def _metavar(param: Any) -> str:
    if param.metavar:
        return str(param.metavar).strip("{}[]")
    if param.param_type_name == "argument":
        return str(param.name).upper()
    kind = _kind(param.type_descriptor.annotation)
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
    return KINDS.get(kind, "VALUE")


def _spelling(param: Any) -> str:
    names = ", ".join(sorted(param.opts, key=len, reverse=True))
    off = f" / {', '.join(param.secondary_opts)}" if param.secondary_opts else ""
    return names + off if param.is_flag else f"{names} {_metavar(param)}"


def _meaning(param: Any) -> str:
    """Return the text of an argument or option, with its default, its variable and whether it is required."""
    text = _text(param.help or "")
    notes = []
    if param.required and param.param_type_name == "option":
        notes.append("Required.")
    if param.multiple if param.param_type_name == "option" else param.nargs == -1:
        notes.append("May be repeated.")
    if param.show_default and param.default not in (None, False, "", (), []) and not callable(param.default):
        notes.append(f"Default: `{param.default}`.")
    if param.envvar:
        notes.append(f"Variable: `{param.envvar}`.")
    return " ".join((text, *notes))


def _text(text: str) -> str:
    """Return a text of the terminal as Markdown: without the escapes of its markup."""
    return text.replace("\\[", "[").strip()


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [[cell.replace("|", r"\|").replace("\n", " ") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def pages() -> dict[str, str]:
    """Return the text of every page by the name of its file."""
    return {"commands.md": commands_page(), "settings.md": settings_page()}


def main(folder: Path) -> None:
    """Write the pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
