"""Tables in a terminal: no lines between columns, so that they stand whole on 80 columns."""

from __future__ import annotations

from rich import box
from rich.table import Column, Table


def whole(header: str) -> Column:
    """Return a column of texts that people copy, such as ids, which is not wrapped where space is scarce."""
    return Column(header, no_wrap=True, overflow="fold")


def light_table(title: str | None = None, *columns: str | Column) -> Table:
    """Return an empty table of the house's look; what is too long for its column goes on in the next line, uncut."""
    return Table(
        *(column if isinstance(column, Column) else Column(column, overflow="fold") for column in columns),
        title=title,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
