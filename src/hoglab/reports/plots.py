"""Plots as SVG elements, for a page without scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10
from xml.etree.ElementTree import Element

WIDTH = 720
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 12, 24
ROW_HEIGHT = 30
MAX_DATES = 8
"""Maximum number of dates under a plot over days."""
COLOURS = (
    "#2563eb",
    "#d97706",
    "#059669",
    "#9333ea",
    "#dc2626",
    "#0891b2",
    "#65a30d",
    "#db2777",
    "#475569",
    "#a16207",
)
LETTER = 6.6
"""Approximate width of a letter of a label."""
LEGEND_LINE = 18
MAX_LABEL = 40
"""Maximum number of letters shown of a label; all of them where the pointer rests on it."""

Label = Callable[[float], str]


def element(tag: str, attributes: Mapping[str, object] | None = None, *children: Element | str) -> Element:
    """Return an element with its attributes and children; text is escaped when the page is written."""
    built = Element(tag, {name: _text(value) for name, value in (attributes or {}).items()})
    for child in children:
        if isinstance(child, Element):
            built.append(child)
        elif len(built):
            built[-1].tail = (built[-1].tail or "") + child
        else:
            built.text = (built.text or "") + child
    return built


def _text(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class Bar:
    """One interval with its estimate, an infinite bound at the edge; ``verdict`` is ``better``, ``worse`` or empty."""

    label: str
    low: float
    high: float
    effect: float
    text: str
    """The interval in words."""
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """Values by day, None where there is none; ``band`` are bounds around them."""

    label: str
    values: Sequence[float | None]
    band: Sequence[tuple[float, float] | None] = ()


@dataclass(frozen=True, slots=True)
class _Scale:
    """A scale from values to places."""

    low: float
    high: float
    first: float
    last: float

    @classmethod
    def over(cls, values: Sequence[float], first: float, last: float) -> _Scale:
        known = [value for value in values if isfinite(value)]
        low, high = min([0.0, *known]), max([0.0, *known])
        margin = (high - low) * 0.06 or 1.0
        return cls(low - (margin if low < 0 else 0), high + margin, first, last)

    def __call__(self, value: float) -> float:
        """Return the place of a value; of an infinite one that of the end of the scale."""
        value = min(max(value, self.low), self.high)
        return self.first + (value - self.low) / (self.high - self.low) * (self.last - self.first)

    def ticks(self, about: int) -> list[float]:
        """Return round numbers inside the range, roughly ``about`` of them."""
        rough = (self.high - self.low) / about
        power = 10.0 ** floor(log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
        first = ceil(self.low / step)
        return [number * step for number in range(first, floor(self.high / step) + 1)]


def forest(bars: Sequence[Bar], label: Label) -> Element:
    """Return intervals below each other on one axis, with a line where there is no effect."""
    height = TOP + ROW_HEIGHT * len(bars) + BOTTOM
    left = min(LEFT + LETTER * max(len(bar.label) for bar in bars), WIDTH / 3)
    scale = _Scale.over(
        [place for bar in bars for place in (bar.low, bar.high, bar.effect)], left, WIDTH - RIGHT
    )
    svg = _svg(height, "Intervals of the effects")
    _vertical_ticks(svg, scale, height - BOTTOM, label)
    for number, bar in enumerate(bars):
        y = TOP + ROW_HEIGHT * (number + 0.5)
        low, high, middle = (scale(value) for value in (bar.low, bar.high, bar.effect))
        kind = f"bar {bar.verdict}".strip()
        row = element(
            "g",
            {"class": kind},
            element("title", None, f"{bar.label}: {bar.text}"),
            element("line", {"x1": low, "x2": high, "y1": y, "y2": y}),
            *(
                element("line", {"x1": x, "x2": x, "y1": y - 5, "y2": y + 5})
                for x, bound in ((low, bar.low), (high, bar.high))
                if isfinite(bound)
            ),
            element("circle", {"cx": middle, "cy": y, "r": 4}),
            element("text", {"x": left - 10, "y": y + 4, "text-anchor": "end"}, shown(bar.label, left - 20)),
        )
        svg.append(row)
    return svg


def shown(label: str, width: float) -> str:
    """Return as much of a label as there is space for."""
    letters = int(width / LETTER)
    return label if len(label) <= letters else f"{label[: letters - 1]}…"


def curves(days: Sequence[str], series: Sequence[Curve], label: Label, name: str) -> Element:
    """Return values over days, each with its band."""
    height = 220
    values = [value for curve in series for value in curve.values if value is not None]
    bounds = [bound for curve in series for pair in curve.band if pair is not None for bound in pair]
    scale = _Scale.over([*values, *bounds], height - BOTTOM, TOP)
    step = (WIDTH - LEFT - RIGHT) / max(len(days) - 1, 1)
    places = [LEFT + step * number for number in range(len(days))]
    legend = _legend([curve.label for curve in series])
    svg = _svg(height + LEGEND_LINE * (1 + max((line for _, line, _ in legend), default=0)), name)
    for tick in scale.ticks(5):
        y = scale(tick)
        kind = "zero" if tick == 0 else "grid"
        svg.append(element("line", {"class": kind, "x1": LEFT, "x2": WIDTH - RIGHT, "y1": y, "y2": y}))
        svg.append(element("text", {"x": LEFT - 6, "y": y + 4, "text-anchor": "end"}, label(tick)))
    for number in range(0, len(days), -(-len(days) // MAX_DATES)):
        place = {"x": places[number], "y": height - 6, "text-anchor": "middle"}
        svg.append(element("text", place, days[number][5:]))
    for number, (curve, (x, line, text)) in enumerate(zip(series, legend, strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        _draw(svg, curve, colour, places, scale)
        y = height + 4 + LEGEND_LINE * line
        svg.append(element("rect", {"x": x, "y": y, "width": 10, "height": 10, "fill": colour}))
        svg.append(element("text", {"x": x + 14, "y": y + 9}, element("title", None, curve.label), text))
    return svg


def _legend(labels: Sequence[str]) -> list[tuple[float, int, str]]:
    """Return for each label its place, its line, and the part of it that is shown."""
    entries: list[tuple[float, int, str]] = []
    x, line = float(LEFT), 0
    for label in labels:
        text = shown(label, MAX_LABEL * LETTER)
        width = 36 + LETTER * len(text)
        if x > LEFT and x + width > WIDTH:
            x, line = float(LEFT), line + 1
        entries.append((x, line, text))
        x += width
    return entries


def _draw(svg: Element, curve: Curve, colour: str, places: Sequence[float], scale: _Scale) -> None:
    known = [(x, pair) for x, pair in zip(places, curve.band, strict=False) if pair is not None]
    if known:
        corners = [(x, pair[0]) for x, pair in known] + [(x, pair[1]) for x, pair in reversed(known)]
        points = " ".join(f"{x:.1f},{scale(value):.1f}" for x, value in corners)
        svg.append(element("polygon", {"points": points, "fill": colour, "fill-opacity": "0.15"}))
    line = [(x, value) for x, value in zip(places, curve.values, strict=True) if value is not None]
    points = " ".join(f"{x:.1f},{scale(value):.1f}" for x, value in line)
    svg.append(element("polyline", {"points": points, "fill": "none", "stroke": colour, "stroke-width": "2"}))
    if len(line) == 1:
        svg.append(element("circle", {"cx": line[0][0], "cy": scale(line[0][1]), "r": 3, "fill": colour}))


def _svg(height: int, name: str) -> Element:
    return element(
        "svg",
        {"viewBox": f"0 0 {WIDTH} {height}", "role": "img", "aria-label": name},
        element("title", None, name),
    )


def _vertical_ticks(svg: Element, scale: _Scale, bottom: float, label: Label) -> None:
    for tick in scale.ticks(6):
        x = scale(tick)
        kind = "zero" if tick == 0 else "grid"
        svg.append(element("line", {"class": kind, "x1": x, "x2": x, "y1": TOP, "y2": bottom}))
        svg.append(element("text", {"x": x, "y": bottom + 16, "text-anchor": "middle"}, label(tick)))
