"""The reference of the language as Markdown: written chapters, and sections generated from the code.

python -m hoglab.functions.documents.language docs/chapters/hog.md tests/hog/oracles docs/hog.md

A comment such as `<!-- library -->` in a chapter is replaced by the section of that name.
"""

from __future__ import annotations

import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hoglab.filters.hog import FILTER
from hoglab.functions.environments import DELIVERING, DESTINATION_LIMITS, MASKING_LIMITS, TRANSFORMATION
from hoglab.hog import ANY, EXPRESSION_LIMITS, LIBRARY, TEMPLATE, Limits, findings
from hoglab.hog.values import format_number
from hoglab.patterns import MULTILINE, searched

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hoglab.hog import Environment, Function

CATEGORIES: Final = {
    "logic": "Null, comparison and choice",
    "conversion": "Conversion",
    "numbers": "Numbers",
    "strings": "Strings",
    "arrays": "Arrays, tuples and objects",
    "json": "JSON",
    "dates": "Dates and times",
    "crypto": "Hashes",
    "network": "Addresses",
    "program": "Printing, waiting, errors",
}
"""The chapters of the library, in order."""

_LIMITS: Final = {
    "time_s": "seconds of computing time; waiting does not count",
    "memory_bytes": "bytes of live values",
    "max_steps": "steps",
    "call_depth": "calls inside calls",
    "arguments": "arguments of one call",
    "async_steps": "calls that the host performs",
    "print_lines": "lines printed in one turn; further ones are dropped",
    "print_chars": "characters of a printed line; longer ones are cut",
}

_ENVIRONMENTS: Final[dict[str, Environment]] = {
    "`hoglab hog`": ANY,
    "filters": FILTER,
    "templates of inputs": TEMPLATE,
    "destinations": DELIVERING,
    "transformations": TRANSFORMATION,
}


def functions() -> list[Function]:
    """Return every function once, by category and name."""
    order = list(CATEGORIES)
    return sorted(
        {function.name: function for function in LIBRARY.values()}.values(),
        key=lambda function: (order.index(function.category), function.name.lower()),
    )


def entry(function: Function) -> str:
    """Return the text about one function: its signature, its description, and its examples."""
    notes = [function.doc]
    if function.aliases:
        notes.append(f"Also called {', '.join(f'`{name}`' for name in function.aliases)}.")
    width = max(len(source) for source, _ in function.examples)
    examples = "\n".join(f"{source:{width}}  -- {printed}" for source, printed in function.examples)
    return f"#### {function.name}\n\n`{function.signature}`\n\n{' '.join(notes)}\n\n```hog\n{examples}\n```\n"


def library() -> str:
    """Return all functions by category."""
    names = ", ".join(f"[{title}](#{_anchor(title)})" for title in CATEGORIES.values())
    introduction = (
        "A signature names parameters and the kinds they are meant for; `?` marks those that may be left out, `...` "
        "any number of further ones. An example is followed by the printed form of its value."
    )
    parts = [f"{len(functions())} functions: {names}.\n\n{introduction}\n"]
    for category, title in CATEGORIES.items():
        parts.append(f"### {title}\n")
        parts += [entry(function) for function in functions() if function.category == category]
    return "\n".join(parts).rstrip()


def limits() -> str:
    """Return a table of the limits, with the values that the code sets."""
    rows: list[Iterable[str]] = [
        ("Limit", "By default", "Programs of functions", "Filters, inputs", "Masking hashes")
    ]
    presets = (Limits(), DESTINATION_LIMITS, EXPRESSION_LIMITS, MASKING_LIMITS)
    for limit in fields(Limits):
        values = [getattr(preset, limit.name) for preset in presets]
        rows.append((f"`{limit.name}`: {_LIMITS[limit.name]}", *map(_grouped, values)))
    return table(rows)


def environments() -> str:
    """Return a table of the functions and globals that the texts of each purpose may use."""
    rows: list[Iterable[str]] = [("Text", "Functions", "Globals")]
    for purpose, environment in _ENVIRONMENTS.items():
        missing = [f"`{name}`" for name in sorted(LIBRARY.keys() - environment.functions.keys())]
        functions = f"all but {' and '.join(missing)}" if missing else "all"
        roots = environment.roots
        globals_ = "any" if roots is None else ", ".join(f"`{name}`" for name in sorted(roots))
        rows.append((purpose, functions, globals_))
    return table(rows)


def differences(listed: Iterable[Mapping[str, Any]], left: str, right: str) -> str:
    """Return the listed differences between the answers of two machines."""
    parts = []
    for difference in listed:
        title: str = difference["title"]
        parts.append(f"**{title[0].upper()}{title[1:]}.** {difference['reason']}\n")
        rows: list[Iterable[str]] = [("Call", left, right)]
        rows += [[text if text == "fails" else _code(text) for text in row] for row in difference["examples"]]
        parts.append(table(rows) + "\n")
    return "\n".join(parts).rstrip()


def table(rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table; the first row is its head."""
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    columns = lines[0].replace("\\|", "").count("|") - 1
    return "\n".join([lines[0], "|" + "---|" * columns, *lines[1:]])


def _code(text: str) -> str:
    """Return a text as inline code, invisible characters escaped."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"


def _grouped(number: int | float) -> str:
    return f"{number:,}" if number.__class__ is int else format_number(number)


_NOT_IN_ANCHORS: Final = searched(r"[^\w\- ]")
_TITLE: Final = searched(r"^## (.+)$", MULTILINE)
_PLACE: Final = searched(r"<!-- ([a-z]+) -->")


def _anchor(title: str) -> str:
    """Return the anchor that GitHub and others give to a heading."""
    return _NOT_IN_ANCHORS.sub("", title.lower()).replace(" ", "-")


def _contents(chapters: str) -> str:
    titles = _TITLE.findall(chapters)
    return "\n".join(f"- [{title}](#{_anchor(title)})" for title in titles)


_TAG: Final = searched(r"^(D?[0-9.]+)(, and [0-9.]+)?:? ")
"""Numbers of decisions before a reason."""


def reasons(listed: Mapping[str, Mapping[str, str]], runner: str) -> str:
    """Return the different reasons of a list by programs, as a list; references to another list are left out."""
    texts = (entry[runner] for entry in listed.values() if runner in entry)
    unique_texts = dict.fromkeys(_TAG.sub("", text) for text in texts if not text.startswith("As "))
    return "\n".join(f"- {text[0].upper()}{text[1:].removesuffix('.')}." for text in unique_texts)


def listed_parts(folder: Path) -> dict[str, str]:
    """Return tables of the differences listed beside the oracle suites."""
    library, parser, runs = (
        tomllib.loads((folder / name).read_text(encoding="utf-8"))
        for name in ("library_differences.toml", "differences.toml", "run_differences.toml")
    )
    return {
        "differences": differences(library["library"], "Official", "hoglab"),
        "javascript": differences(library["javascript"], "Python", "JavaScript"),
        "parser": reasons(parser, "reason"),
        "runs": reasons(runs, "python"),
        "shapes": reasons(
            {name: entry for name, entry in runs.items() if "python" not in entry}, "javascript"
        ),
    }


def reference(chapters: str, listed: Mapping[str, str]) -> str:
    """Return the whole document; `listed` are the results of `listed_parts`."""
    codes = sys.modules[findings.__module__].__doc__ or ""
    parts = {
        **listed,
        "contents": _contents(chapters),
        "limits": limits(),
        "environments": environments(),
        "findings": "\n".join(line for line in codes.splitlines() if line.startswith("|")),
        "library": library(),
    }
    return _PLACE.sub(lambda place: parts[place[1]], chapters)


def main(template: str, oracles: str, target: str) -> None:
    """Write the document."""
    chapters = Path(template).read_text(encoding="utf-8")
    Path(target).write_text(reference(chapters, listed_parts(Path(oracles))), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
