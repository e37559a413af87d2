"""The filters of Liquid that differ from the library's, and the bounds of all filters (spec: hog-runtime 3)."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from email.utils import parsedate_to_datetime
from functools import wraps
from string import ascii_lowercase, ascii_uppercase
from typing import Any
from urllib.parse import quote, quote_plus
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from liquid.exceptions import LiquidError
from liquid.undefined import is_undefined

from hoglab.hog.values import HogDate, HogDateTime, js_string, stringify
from hoglab.http.fields.dates import parse_moment, utc_now
from hoglab.patterns import linear

MAX_VALUE_CHARS = 1_000_000
"""Maximum length of all texts in one value that a filter takes or returns."""
MAX_VALUE_ITEMS = 50_000
"""Maximum number of all items in one such value."""
MAX_VALUE_DEPTH = 64
MAX_SAFE_INTEGER = 2**53 - 1
"""Doubles up to it that are whole numbers are integers."""
LEAST_STORED, MOST_STORED = -(2**63), 2**64 - 1
"""Range of integers that JSON brings, which stay exact; those beyond become doubles, as everywhere in Hog."""
MAX_DATE_CHARS = 100
MAX_FORMAT_CHARS = 200
MAX_FORMAT_WIDTH = 100
"""Maximum width to which a directive of a date format pads."""

DEFAULT_FORMAT = "%A, %B %-e, %Y at %-l:%M %P %z"


class LiquidLimitError(LiquidError):
    """A render takes more than its limits allow."""

    def __init__(self, message: str) -> None:
        super().__init__(message, token=None)


def bounded(
    name: str, function: Callable[..., object], check_time: Callable[[], None]
) -> Callable[..., object]:
    """Return a filter that takes and returns only values of bounded size, with the numbers of JavaScript."""

    @wraps(function)
    def call(value: object, *args: Any, **kwargs: Any) -> object:
        check_time()
        value = _taken(value)
        taken = [_taken(arg) for arg in args]
        if name in TEXT_FILTERS:
            value = printed(value)
        if name in KEY_FILTERS and taken:
            taken[0] = printed(taken[0])  # once, and not for each item
        if name == "replace" and len(taken) == 2:
            _check_replacement(printed(value), printed(taken[0]), printed(taken[1]))
        return _taken(function(value, *taken, **kwargs))

    return call


TEXT_FILTERS = frozenset(
    {
        "append", "base64_decode", "base64_encode", "base64_url_safe_decode", "base64_url_safe_encode",
        "capitalize", "downcase", "escape", "escape_once", "escapejs", "lstrip", "newline_to_br", "prepend",
        "remove", "remove_first", "remove_last", "replace", "replace_first", "replace_last", "rstrip", "split",
        "squish", "strip", "strip_html", "strip_newlines", "truncate", "truncatewords", "upcase", "url_decode",
        "url_encode",
    }
)  # fmt: skip
"""Filters that convert every argument to text."""


KEY_FILTERS = frozenset(
    {"compact", "find", "find_index", "has", "map", "reject", "sort", "sort_natural", "sort_numeric", "sum", "uniq",
     "where"}
)  # fmt: skip
"""Filters on lists whose first argument names a property of the items."""


def _taken(value: Any) -> Any:
    """Return a value whose size was checked; numbers as JavaScript has them, integers of 64 bits exact."""
    cls = value.__class__
    if cls is int:
        return value if LEAST_STORED <= value <= MOST_STORED else _double(value)
    if cls is float:
        return int(value) if value.is_integer() and abs(value) <= MAX_SAFE_INTEGER else value
    if cls is str:
        if len(value) > MAX_VALUE_CHARS:
            raise _too_large()
        return value
    if isinstance(value, (list, tuple, dict, range)):
        _weigh(value)
    return value


def _double(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _too_large() -> LiquidLimitError:
    return LiquidLimitError(f"a value is larger than {MAX_VALUE_CHARS} characters or {MAX_VALUE_ITEMS} items")


def _weigh(value: Any, separator: int = 0) -> None:
    """Raise `LiquidLimitError` for a value that is too large, counting its shared parts each time."""
    chars = items = 0
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        part, depth = waiting.pop()
        if isinstance(part, str):
            chars += len(part)
        elif isinstance(part, range):
            items += len(part)
        elif isinstance(part, (list, tuple, dict)):
            items += len(part)
            chars += separator * len(part)
            if items > MAX_VALUE_ITEMS or depth > MAX_VALUE_DEPTH:
                raise _too_large()
            inner = (*part.keys(), *part.values()) if isinstance(part, dict) else part
            waiting += [(item, depth + 1) for item in inner]
        if chars > MAX_VALUE_CHARS or items > MAX_VALUE_ITEMS:
            raise _too_large()


def _check_replacement(text: str, old: str, new: str) -> None:
    if len(text) + text.count(old) * len(new) > MAX_VALUE_CHARS:
        raise _too_large()


def printed(value: Any) -> str:
    """Return a value as text, as JavaScript writes it. Raises `LiquidLimitError` for a list that is too long."""
    if isinstance(value, str):
        return value
    if value is None or is_undefined(value):
        return ""
    if isinstance(value, (list, tuple)):
        _weigh(value)
        return "".join(printed(part) for part in value)
    if isinstance(value, range):
        return f"{value.start}..{value.stop - 1}"
    if isinstance(value, (datetime, HogDateTime)):
        return _moment(value, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return "[object Object]"
    if isinstance(value, int) and not isinstance(value, bool):
        value = value if LEAST_STORED <= value <= MOST_STORED else _double(value)
    return js_string(value)


_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;"})


def escape(text: str) -> str:
    """Return a text escaped for HTML."""
    return text.translate(_HTML)


# --- filters


def _raw(value: object) -> object:
    """Return the value as it is: printing looks for this filter."""
    return value


def _json(value: Any, indent: object = 0) -> str:
    if is_undefined(value):
        return ""
    width = indent if isinstance(indent, int) and 0 <= indent <= 10 else 0
    return stringify(dict(value) if isinstance(value, Mapping) else value, width)


def _join(value: Any, separator: object = " ") -> str:
    glue = printed(separator)
    if not isinstance(value, (list, tuple, range)):
        return printed(value)
    _weigh(value, len(glue))
    return glue.join(printed(part) for part in value)


def _uniq(value: Any) -> list[Any]:
    """Return a list without repeats, in the order of the first ones."""
    seen: dict[str, Any] = {}
    for item in _listed(value):
        seen.setdefault(stringify(item), item)
    return list(seen.values())


def _concat(value: Any, other: Any) -> list[Any]:
    return [*_listed(value), *_listed(other)]


def _listed(value: Any) -> list[Any]:
    if value is None or is_undefined(value):
        return []
    return list(value) if isinstance(value, (list, tuple, range)) else [value]


_BLOCKS = {"<script": "</script>", "<style": "</style>", "<!--": "-->", "<": ">"}
"""End of a piece of markup by its start; the first start that fits and has an end counts."""
_SMALL_LETTERS = str.maketrans(ascii_uppercase, ascii_lowercase)


def _strip_html(value: str) -> str:
    """Return a text without markup, in linear time: an end that is nowhere is looked for once."""
    folded, blocks = value.translate(_SMALL_LETTERS), dict(_BLOCKS)
    kept: list[str] = []
    position = 0
    while (start := folded.find("<", position)) >= 0:
        end = _end_of_markup(folded, start, blocks)
        if end is None:
            break
        kept.append(value[position:start])
        position = end
    return "".join([*kept, value[position:]])


def _end_of_markup(text: str, start: int, blocks: dict[str, str]) -> int | None:
    """Return where the markup that starts here ends, None for none, and remove blocks that end nowhere behind it."""
    for opening in [opening for opening in blocks if text.startswith(opening, start)]:
        end = text.find(blocks[opening], start + len(opening))
        if end >= 0:
            return end + len(blocks[opening])
        del blocks[opening]
    return None


def _divided_by(value: Any, divisor: Any, whole: object = False) -> float:
    """Return a quotient as JavaScript computes it: by zero it is infinite, and whole only on request."""
    above, below = _number(value), _number(divisor)
    if below == 0:
        return math.nan if above == 0 or math.isnan(above) else math.copysign(math.inf, above)
    return float(above // below) if whole is True else above / below


def _number(value: Any) -> float:
    try:
        return float(printed(value) or 0)
    except ValueError:
        return math.nan


def _to_integer(value: Any) -> int:
    return int(float(printed(value)))


def _default(value: Any, other: Any = "", *, allow_false: object = False) -> Any:
    if value is False and allow_false is True:
        return value
    empty = value is None or value is False or is_undefined(value) or value in ("", [], {})
    return other if empty else value


# --- dates


def _date(value: Any, pattern: object = None, zone: object = None) -> Any:
    """Return a moment in a format; a value that is not a moment is returned as it is."""
    moment = _read_moment(value)
    if moment is None:
        return value
    layout = DEFAULT_FORMAT if pattern is None or is_undefined(pattern) else printed(pattern)
    if len(layout) > MAX_FORMAT_CHARS:
        raise LiquidLimitError(f"a date format is longer than {MAX_FORMAT_CHARS} characters")
    return strftime(moment.astimezone(_zone(zone)), layout)


def _read_moment(value: Any) -> datetime | None:
    if value in ("now", "today"):
        return utc_now()
    if isinstance(value, (datetime, HogDateTime, HogDate)):
        return _moment(value, UTC)
    if isinstance(value, bool):
        return None
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 15:
        text = int(text)
    if isinstance(text, (int, float)):  # seconds, as Liquid has it
        return datetime.fromtimestamp(text, UTC) if abs(text) < 253_402_300_799 else None
    if not isinstance(text, str) or not 0 < len(text) <= MAX_DATE_CHARS:
        return None
    for parse in (parse_moment, parsedate_to_datetime):
        try:
            return _moment(parse(text), UTC)
        except (ValueError, OverflowError, TypeError, IndexError):
            continue
    return None


def _moment(value: datetime | HogDateTime | HogDate, zone: tzinfo) -> datetime:
    if isinstance(value, HogDate):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, HogDateTime):
        return datetime.fromtimestamp(value.seconds, UTC)
    return value.replace(tzinfo=zone) if value.tzinfo is None else value


def _zone(zone: object) -> tzinfo:
    """Return a zone by its name, or by the minutes that UTC is ahead of it, as in JavaScript."""
    if isinstance(zone, int) and not isinstance(zone, bool) and abs(zone) < 1_440:
        return timezone(timedelta(minutes=-zone))
    try:
        return ZoneInfo(zone) if isinstance(zone, str) and zone else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


_Directive = Callable[[datetime], str | int]

_PADDED: Mapping[str, tuple[_Directive, int, str]] = {
    "d": (lambda at: at.day, 2, "0"),
    "e": (lambda at: at.day, 2, " "),
    "H": (lambda at: at.hour, 2, "0"),
    "I": (lambda at: at.hour % 12 or 12, 2, "0"),
    "j": (lambda at: at.timetuple().tm_yday, 3, "0"),
    "k": (lambda at: at.hour, 2, " "),
    "l": (lambda at: at.hour % 12 or 12, 2, " "),
    "L": (lambda at: at.microsecond // 1_000, 3, "0"),
    "m": (lambda at: at.month, 2, "0"),
    "M": (lambda at: at.minute, 2, "0"),
    "N": (lambda at: f"{at.microsecond:06d}000", 9, "0"),
    "S": (lambda at: at.second, 2, "0"),
    "U": (lambda at: at.strftime("%U"), 2, "0"),
    "W": (lambda at: at.strftime("%W"), 2, "0"),
    "V": (lambda at: at.isocalendar().week, 2, "0"),
    "C": (lambda at: at.year // 100, 2, "0"),
    "y": (lambda at: at.year % 100, 2, "0"),
    "Y": (lambda at: at.year, 4, "0"),
    "G": (lambda at: at.isocalendar().year, 4, "0"),
}  # fmt: skip
"""Directives of numbers: the number, its width, and the padding."""

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)  # fmt: skip

_PLAIN: Mapping[str, _Directive] = {
    "a": lambda at: _DAYS[at.weekday()][:3],
    "A": lambda at: _DAYS[at.weekday()],
    "b": lambda at: _MONTHS[at.month - 1][:3],
    "h": lambda at: _MONTHS[at.month - 1][:3],
    "B": lambda at: _MONTHS[at.month - 1],
    "p": lambda at: "AM" if at.hour < 12 else "PM",
    "P": lambda at: "am" if at.hour < 12 else "pm",
    "q": lambda at: _ordinal(at.day),
    "s": lambda at: int(at.timestamp()),
    "u": lambda at: at.isoweekday(),
    "w": lambda at: at.isoweekday() % 7,
    "z": lambda at: at.strftime("%z"),
    "Z": lambda at: at.tzname() or "",
    "n": lambda _at: "\n",
    "t": lambda _at: "\t",
    "%": lambda _at: "%",
}

_COMPOSED = {
    "c": "%-m/%-d/%Y, %-I:%M:%S %p",
    "D": "%m/%d/%y",
    "F": "%Y-%m-%d",
    "r": "%I:%M:%S %p",
    "R": "%H:%M",
    "T": "%H:%M:%S",
    "v": "%e-%b-%Y",
    "x": "%-m/%-d/%Y",
    "X": "%-I:%M:%S %p",
}

_DIRECTIVE = linear(r"%([-_0^#:]*)(\d*)([A-Za-z%])")


def strftime(at: datetime, layout: str) -> str:
    """Return a moment in a format.

    The system's function pads to any width and depends on the system.
    """

    def directive(match: Any) -> str:
        flags, width, letter = match.groups()
        return _directive(at, flags, int(width or 0), letter, match.group(0))

    text: str = _DIRECTIVE.sub(directive, layout)
    return text


def _directive(at: datetime, flags: str, width: int, letter: str, whole: str) -> str:
    if letter in _COMPOSED:
        text, wide, fill = strftime(at, _COMPOSED[letter]), 0, " "
    elif letter in _PADDED:
        read, wide, fill = _PADDED[letter]
        text = str(read(at))
    elif letter in _PLAIN:
        text, wide, fill = str(_PLAIN[letter](at)), 0, " "
    else:
        return whole
    if letter == "z" and ":" in flags:
        text = f"{text[:3]}:{text[3:]}"
    if "^" in flags:
        text = text.upper()
    if "#" in flags:
        text = text.swapcase()
    if "-" in flags:
        return text
    if "_" in flags:
        fill = " "
    elif "0" in flags:
        fill = "0"
    return text.rjust(min(max(width, wide), MAX_FORMAT_WIDTH), fill)


def _ordinal(day: int) -> str:
    if 10 < day < 14:
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")


FILTERS: Mapping[str, Callable[..., object]] = {
    "raw": _raw,
    "json": _json,
    "jsonify": _json,
    "inspect": _json,
    "join": _join,
    "concat": _concat,
    "divided_by": _divided_by,
    "uniq": _uniq,
    "strip_html": _strip_html,
    "escape": lambda value: escape(printed(value)),
    "escape_once": lambda value: escape(html.unescape(printed(value))),
    "xml_escape": lambda value: escape(printed(value)),
    "url_encode": lambda value: quote_plus(printed(value), safe="*"),
    "cgi_escape": lambda value: quote_plus(printed(value), safe="*"),
    "uri_escape": lambda value: quote(printed(value), safe="!#$&'()*+,/:;=?@[]~"),
    "to_integer": _to_integer,
    "default": _default,
    "date": _date,
}
