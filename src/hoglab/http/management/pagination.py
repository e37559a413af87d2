"""Pages of lists (spec: experiments-api 1.7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from urllib.parse import parse_qsl, urlencode

from hoglab.http.fields.fields import WireModel

if TYPE_CHECKING:
    from collections.abc import Sequence

ItemT = TypeVar("ItemT")

DEFAULT_LIMIT = 100
MAX_LIMIT = 10_000
MAX_OFFSET = 2**53
"""Larger offsets count as this one: no list is that long, and it still fits every engine's integer."""


@dataclass(frozen=True, slots=True)
class Page:
    """The requested page of a list."""

    limit: int
    offset: int


class ListRequest(Protocol):
    """A request for a list."""

    def page(self) -> Page:
        """Return the requested page."""

    def link(self, **changes: int | str | None) -> str:
        """Return the address of the request with some query parameters replaced; None removes one."""


class Paged(WireModel, Generic[ItemT]):
    """A page of a list."""

    count: int
    next: str | None
    previous: str | None
    results: list[ItemT]


def read_page(
    limit: str | None, offset: str | None, *, default: int = DEFAULT_LIMIT, maximum: int = MAX_LIMIT
) -> Page:
    """Return the page that two query parameters ask for. Invalid values count as missing."""
    wanted = _natural(limit)
    return Page(min(wanted, maximum) if wanted else default, min(_natural(offset) or 0, MAX_OFFSET))


def _natural(text: str | None) -> int | None:
    if text is None:
        return None
    digits = text.strip().removeprefix("+")
    if not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits) if len(digits) <= 18 else 10**18


def envelope(call: ListRequest, items: Sequence[Any], count: int, page: Page | None = None) -> dict[str, Any]:
    """Return the list object: ``count`` over all pages, links to the neighbours, and this page's ``items``.

    ``page`` is what the list was cut with when that is not ``call.page()``.
    """
    page = page or call.page()
    after, before = page.offset + page.limit, page.offset - page.limit
    following = call.link(limit=page.limit, offset=after) if after < count else None
    if page.offset <= 0:
        preceding = None
    elif before <= 0:
        preceding = call.link(limit=page.limit, offset=None)
    else:
        preceding = call.link(limit=page.limit, offset=before)
    return {"count": count, "next": following, "previous": preceding, "results": items}


def replace_query(query: str, changes: dict[str, int | str | None]) -> str:
    """Return a query string with some parameters replaced (None removes one), sorted by name and encoded again."""
    pairs = [
        pair for pair in parse_qsl(query, keep_blank_values=True, errors="replace") if pair[0] not in changes
    ]
    pairs += [(name, str(value)) for name, value in changes.items() if value is not None]
    pairs.sort(key=lambda pair: pair[0])
    return urlencode(pairs)
