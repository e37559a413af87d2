"""The library function formatDateTime.  spec: hog-language 10.6."""

import datetime as dt
from collections.abc import Callable
from typing import Final

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.context import Context
from hoglab.hog.rt.dates import local_time, offset_text, time_zone
from hoglab.hog.rt.printing import is_truthy, js_string
from hoglab.hog.rt.values import Value
from hoglab.hog.stdlib.dates.moments import expect_datetime
from hoglab.hog.stdlib.registry import expect_string, function

_MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _hour12(t: dt.datetime) -> int:
    return t.hour % 12 or 12


def _half(t: dt.datetime) -> str:
    return "AM" if t.hour < 12 else "PM"


_TOKENS: Final[dict[str, Callable[[dt.datetime], str]]] = {
    "a": lambda t: _DAYS[t.weekday()][:3],
    "b": lambda t: _MONTHS[t.month - 1][:3],
    "c": lambda t: f"{t.month:02}",
    "C": lambda t: f"{t.year % 100:02}",
    "d": lambda t: f"{t.day:02}",
    "D": lambda t: f"{t.month:02}/{t.day:02}/{t.year % 100:02}",
    "e": lambda t: str(t.day),
    "f": lambda t: f"{t.microsecond // 1000:03}",
    "F": lambda t: f"{t.year:04}-{t.month:02}-{t.day:02}",
    "g": lambda t: f"{t.year % 100:02}",
    "G": lambda t: f"{t.year:04}",
    "h": lambda t: f"{_hour12(t):02}",
    "H": lambda t: f"{t.hour:02}",
    "i": lambda t: f"{t.minute:02}",
    "I": lambda t: f"{_hour12(t):02}",
    "j": lambda t: f"{t.timetuple().tm_yday:03}",
    "k": lambda t: f"{t.hour:02}",
    "l": lambda t: f"{_hour12(t):02}",
    "m": lambda t: f"{t.month:02}",
    "M": lambda t: _MONTHS[t.month - 1],
    "n": lambda _: "\n",
    "p": _half,
    "Q": lambda t: str((t.month + 2) // 3),
    "r": lambda t: f"{_hour12(t):02}:{t.minute:02} {_half(t)}",
    "R": lambda t: f"{t.hour:02}:{t.minute:02}",
    "s": lambda t: f"{t.second:02}",
    "S": lambda t: f"{t.second:02}",
    "t": lambda _: "\t",
    "T": lambda t: f"{t.hour:02}:{t.minute:02}:{t.second:02}",
    "u": lambda t: str(t.isoweekday()),
    "V": lambda t: f"{t.isocalendar().week:02}",
    "w": lambda t: str(t.isoweekday()),
    "W": lambda t: _DAYS[t.weekday()],
    "y": lambda t: f"{t.year % 100:02}",
    "Y": lambda t: f"{t.year:04}",
    "z": lambda t: offset_text(t, ""),
    "%": lambda _: "%",
}


@function(
    "formatDateTime",
    "moment: datetime",
    "format: string",
    "zone?: string",
    category="dates",
    returns="string",
    cost="growing",
    weight=64,
    context=True,
    doc="A datetime as text. In the format %Y %m %d %H %i %S stand for year, month, day, hour, minute and "
    "second; further tokens: %a %b %c %C %D %e %f %F %g %G %h %I %j %k %l %M %n %p %Q %r %R %s %t %T "
    "%u %V %w %W %y %z %%. Unknown tokens give nothing, other text stands for itself. The zone is the "
    "datetime's own unless one is given.",
    examples=(
        ("formatDateTime(toDateTime('2009-02-11T18:42:23Z'), '%Y-%m-%d %H:%i:%S')", "'2009-02-11 18:42:23'"),
        (
            "formatDateTime(toDateTime('2009-02-11T18:42:23Z'), '%W, %e %M at %r')",
            "'Wednesday, 11 February at 06:42 PM'",
        ),
        (
            "formatDateTime(toDateTime('2009-02-11T18:42:23Z'), '%F %T %z', 'Asia/Kolkata')",
            "'2009-02-12 00:12:23 +0530'",
        ),
    ),
)
def _format_datetime(ctx: Context, moment: Value, pattern: Value, zone: Value = None) -> str:
    date_time = expect_datetime(moment)
    if not is_truthy(pattern):
        raise HogRuntimeError("formatDateTime requires at least 2 arguments")
    text = js_string(pattern)
    name = date_time.zone if zone is None else expect_string("formatDateTime", zone) or "UTC"
    time_zone(name)
    ctx.grow(10 * len(text))
    try:
        wall_clock = local_time(date_time.seconds, name)
    except OverflowError:
        raise HogRuntimeError("The moment lies outside the calendar") from None
    return _formatted(wall_clock, text)


def _formatted(wall_clock: dt.datetime, pattern: str) -> str:
    literal, *tokens = pattern.split("%")
    parts = [literal]
    pending = iter(tokens)
    for token in pending:
        if token:
            write = _TOKENS.get(token[0])
            parts.append(write(wall_clock) if write else "")
            parts.append(token[1:])
        else:  # two percent signs in a row: the text after the second one is literal
            following = next(pending, None)
            if following is not None:
                parts.append("%" + following)
    return "".join(parts)
