"""Liquid templates inside inputs (spec: hog-runtime 3).

Texts are rendered as LiquidJS renders them for PostHog: the output of ``{{ }}`` is escaped for HTML unless its last
filter is ``raw``, unknown variables print nothing, unknown filters change nothing, and there are no partials. A
template is another person's program: every render is bounded in time, output, loop iterations and the size of the
values that it makes.
"""

from __future__ import annotations

import time
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

from liquid import BoundTemplate, Environment, RenderContext
from liquid.builtin.expressions import FilteredExpression
from liquid.builtin.expressions.primitive import RangeLiteral
from liquid.builtin.output import Output, OutputNode
from liquid.builtin.tags.echo_tag import EchoNode, EchoTag
from liquid.builtin.tags.include_tag import IncludeTag
from liquid.builtin.tags.render_tag import RenderTag
from liquid.exceptions import LiquidError
from liquid.output import LimitedStringIO
from liquid.undefined import UNDEFINED
from liquid.utils import ReadOnlyChainMap

from hoglab.functions.templating.liquid_filters import (
    FILTERS,
    MAX_VALUE_ITEMS,
    LiquidLimitError,
    bounded,
    escape,
    printed,
)
from hoglab.hog import HogRuntimeError, map_texts
from hoglab.http.fields.dates import utc_now
from hoglab.patterns import linear

if TYPE_CHECKING:
    from contextlib import _GeneratorContextManager

    from liquid.builtin.tags.for_tag import ForLoop
    from liquid.builtin.tags.tablerow_tag import TableRow
    from liquid.token import Token

MAX_TEMPLATE_CHARS = 100_000
"""Maximum length of one template."""
MAX_OUTPUT_BYTES = 1_000_000
"""Maximum size of a template's output, and of the contents of its variables."""
MAX_LOOP_ITERATIONS = 10_000
"""Maximum number of runs of the innermost of nested loops."""
RENDER_TIME_S = 0.5
"""Computing time of one render, in seconds."""

_MARKUP = linear(r"(?s)\{\{.*?\}\}|\{%.*?%\}")
_VERBATIM = linear(
    r"(?s)\{%-?\s*raw\s*-?%\}.*?\{%-?\s*endraw\s*-?%\}|\{%-?\s*doc\s*-?%\}.*?\{%-?\s*enddoc\s*-?%\}"
)
_VERBATIM_OPENING = linear(r"\{%-?\s*(?:raw|doc)\s*-?%\}")
_ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&#x27;", "'"), ("&amp;", "&"))


class LiquidTemplateError(Exception):
    """A text is not Liquid; ``line`` is the line of the error, counted from 1."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


class _Context(RenderContext):
    """Keeps the time, and the sizes of the results of filters. It has no variables but the given ones."""

    __slots__ = ("_deadline",)

    def __init__(self, template: BoundTemplate, *, globals: Mapping[str, object] | None = None) -> None:  # noqa: A002
        super().__init__(template, globals=globals)
        self.scope = ReadOnlyChainMap(self.locals, self.globals, self.counters)
        self._deadline = time.thread_time() + RENDER_TIME_S

    def get(self, path: list[object], *, token: Token | None, default: object = UNDEFINED) -> object:
        """Return the value at a path. Every operation on a long value begins here."""
        self.check_time()
        return super().get(path, token=token, default=default)

    def filter(self, name: str, token: Token | None) -> Callable[..., object]:
        return bounded(name, super().filter(name, token), self.check_time)

    def loop(
        self, namespace: Mapping[str, object], forloop: ForLoop | TableRow
    ) -> _GeneratorContextManager[RenderContext, None, None]:
        forloop.it = self._timed(forloop.it)
        return super().loop(namespace, forloop)

    def _timed(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            self.check_time()
            yield item

    def check_time(self) -> None:
        """Raise `LiquidLimitError` when the render has had its time."""
        if time.thread_time() > self._deadline:
            raise LiquidLimitError(f"the template ran longer than {RENDER_TIME_S} s")


class _Template(BoundTemplate):
    context_class = _Context


_range = RangeLiteral.evaluate


def _bounded_range(self: RangeLiteral, context: RenderContext) -> range:
    """Return a range of bounded length: skipping its first items, reversing and searching take time by its length."""
    numbers = _range(self, context)
    if isinstance(context, _Context):
        context.check_time()
        if numbers.stop - numbers.start > MAX_VALUE_ITEMS:
            raise LiquidLimitError(f"a range has more than {MAX_VALUE_ITEMS} items")
    return numbers


# The parser makes ranges of this very class wherever an expression may stand.
RangeLiteral.evaluate = _bounded_range  # type: ignore[method-assign]


class _EscapedOutput(OutputNode):
    """Prints a value for HTML."""

    def render_to_output(self, context: RenderContext, buffer: TextIO) -> int:
        text = printed(self.expression.evaluate(context))
        return buffer.write(text if self._is_raw() else escape(text))

    def _is_raw(self) -> bool:
        expression = self.expression
        filters = (expression.filters or []) if isinstance(expression, FilteredExpression) else []
        return bool(filters) and filters[-1].name == "raw"


class _EscapedEcho(_EscapedOutput, EchoNode):
    """Tag that prints a value for HTML."""


class _Output(Output):
    node_class = _EscapedOutput


class _Echo(EchoTag):
    node_class = _EscapedEcho


class _Environment(Environment):
    template_class = _Template
    loop_iteration_limit: ClassVar[int | None] = MAX_LOOP_ITERATIONS
    local_namespace_limit: ClassVar[int | None] = MAX_OUTPUT_BYTES
    output_stream_limit: ClassVar[int | None] = MAX_OUTPUT_BYTES

    def setup_tags_and_filters(self, *, extra: bool = False) -> None:
        super().setup_tags_and_filters(extra=extra)
        self.add_tag(_Output)
        self.add_tag(_Echo)
        for partial in (IncludeTag, RenderTag):
            del self.tags[partial.name]
        for name, function in FILTERS.items():
            self.add_filter(name, function)


ENVIRONMENT = _Environment(strict_filters=False)


@dataclass(frozen=True, slots=True)
class LiquidTemplate:
    """One parsed text."""

    template: BoundTemplate

    @classmethod
    def parse(cls, text: str) -> LiquidTemplate:
        """Return a parsed text. Raises `LiquidTemplateError`."""
        if len(text) > MAX_TEMPLATE_CHARS:
            raise LiquidTemplateError(f"Liquid templates may be {MAX_TEMPLATE_CHARS} characters long")
        try:
            return cls(ENVIRONMENT.from_string(_MARKUP.sub(_decoded, _closed(text))))
        except LiquidError as error:
            raise LiquidTemplateError(*_explained(error)) from None
        except (RecursionError, ValueError, ArithmeticError) as error:
            raise LiquidTemplateError(f"the template cannot be read ({type(error).__name__})") from None

    def render(self, variables: Mapping[str, Any]) -> str:
        """Return the text for some variables. Raises `LiquidTemplateError` for a failure or a timeout."""
        context = _Context(self.template, globals=ChainMap({"now": utc_now()}, dict(variables)))
        buffer = LimitedStringIO(MAX_OUTPUT_BYTES)
        try:
            self.template.render_with_context(context, buffer)
        except LiquidError as error:
            raise LiquidTemplateError(*_explained(error)) from None
        except (RecursionError, ValueError, ArithmeticError, TypeError, LookupError, AttributeError) as error:
            # Filters of the library fail like this on values that they do not expect.
            raise LiquidTemplateError(f"a filter cannot work on its value ({error})") from None
        return buffer.getvalue()


@dataclass(frozen=True, slots=True)
class _Faulty:
    """A text that is not Liquid: the error is raised by rendering, as saving does not check."""

    error: LiquidTemplateError

    def render(self, _variables: Mapping[str, Any]) -> str:
        raise self.error


def renderer(values: Mapping[str, Any]) -> Callable[[str, Mapping[str, Any]], Any]:
    """Return a function that renders an input by its key in ``values`` and the globals.

    The function raises `HogRuntimeError` for texts that are not Liquid and for those that take too much time.
    """
    parsed = {key: map_texts(value, lambda text, _path: _parsed(text)) for key, value in values.items()}

    def render(key: str, variables: Mapping[str, Any]) -> Any:
        try:
            return _rendered(parsed[key], variables)
        except LiquidTemplateError as error:
            raise HogRuntimeError(f"Liquid template of input '{key}': {error}") from None

    return render


def _parsed(text: str) -> LiquidTemplate | _Faulty | str:
    if not has_markup(text):
        return text
    try:
        return LiquidTemplate.parse(text)
    except LiquidTemplateError as error:
        return _Faulty(error)


def _rendered(shape: Any, variables: Mapping[str, Any]) -> Any:
    if isinstance(shape, (LiquidTemplate, _Faulty)):
        return shape.render(variables)
    if isinstance(shape, dict):
        return {key: _rendered(part, variables) for key, part in shape.items()}
    if isinstance(shape, list):
        return [_rendered(part, variables) for part in shape]
    return shape


def has_markup(text: str) -> bool:
    """Return whether Liquid would change a text."""
    return "{{" in text or "{%" in text


def _closed(text: str) -> str:
    """Return the text.

    Raises `LiquidTemplateError` for a tag that is not closed, which the library takes quadratic time to notice.
    """
    rest = _VERBATIM.sub("", text)
    if _VERBATIM_OPENING.search(rest):
        raise LiquidTemplateError("a raw or doc tag is not closed")
    rest = _MARKUP.sub("", rest)
    for opening, what in (("{{", "an output"), ("{%", "a tag")):
        if opening in rest:
            raise LiquidTemplateError(f"{what} is not closed")
    return text


def _decoded(match: Any) -> str:
    """Return markup as it was before an HTML editor wrote entities for its quotes and comparisons."""
    text: str = match.group(0)
    for entity, character in _ENTITIES:
        text = text.replace(entity, character)
    return text


def _explained(error: LiquidError) -> tuple[str, int]:
    place = error.context()
    line = 1 if place is None else place[0]
    return str(error.message), line
