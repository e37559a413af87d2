"""How tables look in a terminal: no lines between columns, so that they stand whole on 80 columns."""

from __future__ import annotations

from rich import box
from rich.table import Table


def light_table(title: str | None = None) -> Table:
    """An empty table of the house's look."""
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
