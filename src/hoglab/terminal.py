"""Texts for terminals: what strangers wrote cannot move the cursor, set the title, or turn around what is shown.

Control characters, those of the C1 range, direction controls, lone surrogates and characters without width (so that
names that differ look different) are shown as JSON escapes (``\\u001b``), so that JSON stays the same JSON. All that
commands and the log say goes through `plain` or `line`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hoglab.patterns import Match, searched

if TYPE_CHECKING:
    from rich.console import Console

_ACTIVE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff"
)
_CONTROLS = searched(f"[{_ACTIVE}]")
_CONTROLS_AND_BREAKS = searched(f"[\t\n{_ACTIVE}]")


def plain(text: str) -> str:
    """Return a text whose only control characters are tabs and line breaks."""
    return _CONTROLS.sub(_escaped, text)


def line(text: str) -> str:
    """Return a text without any control characters, for what is to be one line."""
    return _CONTROLS_AND_BREAKS.sub(_escaped, text)


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Write a text to standard output, or to standard error."""
    import click

    click.echo(plain(str(text)), err=err, nl=nl)


def echo_exactly(text: str, *, nl: bool = True) -> None:
    """Write a text that programs read to standard output: unchanged, unless that is a terminal."""
    import click

    click.echo(plain(text) if sys.stdout.isatty() else text, nl=nl)


def replace_line(text: str, *, ends: bool) -> None:
    """Write a text over the line of standard error that the cursor is in. ``ends``: whether that line is done."""
    import click

    click.echo(f"\r\x1b[K{line(text)}", err=True, nl=ends)


def plain_console(**options: Any) -> Console:
    """Return a console of rich whose texts are plain, and are no markup unless it is asked for.

    Markup of strangers would make links and colours, or an error.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class PlainConsole(Console):
        """Console that escapes whatever is rendered and is no control code of rich itself."""

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(plain(segment.text), segment.style)

    return PlainConsole(**{"markup": False, "highlight": False, **options})


def _escaped(match: Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
