"""One style for all Hog: `format_program`, `format_template`.

Lines of 100 columns, two spaces a level, comments where they were, at most one empty line between statements.
The meaning of a text never changes: the trees are compared before a result is returned.
"""

from __future__ import annotations

from hoglab.hog import nodes as n
from hoglab.hog.formatter import concrete
from hoglab.hog.formatter.layout import WIDTH, render
from hoglab.hog.formatter.printer import Printer
from hoglab.hog.parser import parse_program, parse_template

__all__ = ["WIDTH", "format_program", "format_template"]


def format_program(source: str) -> str:
    """Lay out a program in the house style; formatting it again changes nothing.

    Raises `HogSyntaxError` for text that does not parse.
    """
    read = concrete.read(source)
    wanted = _shape(read.tree)
    for keep_semicolons in (False, True):
        text = render(Printer(read, keep_semicolons=keep_semicolons).program())
        if _shape(parse_program(text)) == wanted:
            return text
    raise AssertionError("formatting would change what the program means")


def format_template(source: str) -> str:
    """Lay out a template: the expressions in its braces get the house style; its text is untouched.

    Raises `HogSyntaxError` for text that does not parse.
    """
    read = concrete.read(source, template=True)
    text = "".join(Printer(read).template())
    if _shape(parse_template(text)) != _shape(read.tree):
        raise AssertionError("formatting would change what the template means")
    return text


def _shape(tree: n.Node) -> str:
    return repr(n.dump(tree))
