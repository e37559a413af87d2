"""Columns of text that sort and compare by code points, in a database of any locale.

So every engine gives the same order, pages that follow each other by a text fit together, and an index of texts serves
prefixes.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, String, Text
from sqlalchemy.dialects.postgresql.base import PGTypeCompiler
from sqlalchemy.ext.compiler import compiles

_known: list[Any] = []


def sort_by_code_points() -> None:
    """Compile columns of text from now on so that they sort by code points."""
    if _known:
        return

    @compiles(String, "postgresql")
    @compiles(Text, "postgresql")
    def text_type(type_: String, compiler: PGTypeCompiler, **keywords: Any) -> str:
        visit = getattr(compiler, f"visit_{type_.__visit_name__}")
        text: str = visit(type_, **keywords)
        of_column = isinstance(keywords.get("type_expression"), Column)
        return f'{text} COLLATE "C"' if of_column and not type_.collation else text

    _known.append(text_type)
