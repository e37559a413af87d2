"""``hoglab hog docs``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hoglab.cli.errors import OperatorError
from hoglab.terminal import echo, plain_console

if TYPE_CHECKING:
    from hoglab.hog import Function


def docs(
    function: Annotated[
        str, typer.Argument(metavar="[FUNCTION]", help="A function, or a part of a name or description.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the reference of a library function, or find functions.

    With the name of a function, all about it; with any other word, the functions that have it in their name or
    description; without, all of them by category.
    """
    from hoglab.hog import LIBRARY, closest_function

    exact = LIBRARY.get(function)
    matches = [exact] if exact is not None else _search(function)
    if not matches:
        guess = closest_function(function, LIBRARY)
        hint = f"; did you mean {guess}?" if guess else ""
        raise OperatorError(f"no function is about {function!r}{hint}")
    if as_json:
        echo(json.dumps([_data(match) for match in matches], ensure_ascii=False))
    elif exact is not None:
        _show(exact)
    else:
        _list(matches)


def _search(word: str) -> list[Function]:
    from hoglab.hog import LIBRARY

    wanted = word.lower()
    matches = {
        function.name: function
        for name, function in LIBRARY.items()
        if wanted in name.lower() or wanted in function.doc.lower() or wanted == function.category.lower()
    }
    return sorted(matches.values(), key=lambda function: (function.category, function.name.lower()))


def _data(function: Function) -> dict[str, Any]:
    return {
        "name": function.name,
        "aliases": list(function.aliases),
        "category": function.category,
        "signature": function.signature,
        "doc": function.doc,
        "pure": function.pure,
        "examples": [{"code": code, "gives": gives} for code, gives in function.examples],
    }


def _show(function: Function) -> None:
    from rich.text import Text

    console = plain_console(soft_wrap=True, highlight=False)
    console.print(Text(function.signature, style="bold"))
    console.print(Text(f"\n{function.doc}\n"))
    for code, gives in function.examples:
        console.print(Text(f"  {code}").append(f"   -- {gives}", style="dim"))
    also = f"also called {', '.join(function.aliases)}; " if function.aliases else ""
    waits = "; the program waits for its result" if function.is_async else ""
    console.print(Text(f"\n{also}category {function.category}{waits}", style="dim"))


def _list(functions: list[Function]) -> None:
    from rich.text import Text

    console = plain_console(soft_wrap=True, highlight=False)
    width = max(len(function.name) for function in functions)
    category = None
    for function in functions:
        if function.category != category:
            console.print(Text(f"{'' if category is None else chr(10)}{function.category}", style="bold"))
            category = function.category
        first = function.doc.split(". ")[0].removesuffix(".")
        console.print(Text(f"  {function.name:{width}}  ").append(first, style="dim"))
