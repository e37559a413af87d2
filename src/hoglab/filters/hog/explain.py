"""Why a filter matches an event, or does not: every term with its value and with what it looked at.

The verdict is that of the filter as it runs; the terms are evaluated one by one beside it, so that one that fails
does not hide the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from hoglab.filters.hog.actions import step_conditions, steps_of
from hoglab.filters.hog.compiled import CompiledFilter, FilterFailure
from hoglab.filters.hog.expression import ACTIVITY_EVENT, FilterExpression, build_filter
from hoglab.filters.hog.properties import ROOTS, FilterContext, PropertyBuilder
from hoglab.filters.hog.source import parse_condition
from hoglab.filters.hog.tree import Condition, compare, const, field
from hoglab.filters.model import PropertyFilter, PropertyGroup, parse_filters
from hoglab.hog import nodes as n
from hoglab.hog.analyse import read_paths
from hoglab.hog.rt.printing import is_truthy
from hoglab.hog.rt.values import to_json
from hoglab.hog.symbols import resolve
from hoglab.hog.writing import write

if TYPE_CHECKING:
    from hoglab.filters.hog.compiled import Globals
    from hoglab.hog.nodes import Expr

Kind = Literal["all", "any", "not", "term"]

MAX_LABEL = 200
"""Characters of a term's text that are kept."""


@dataclass(frozen=True, slots=True)
class Term:
    """One part of a filter.

    `holds` is None where the term failed, and `error` says why. `value` is what a single term gave, as JSON;
    `sees` the values of the event that it looked at, by path. `terms` are the parts of `all`, `any` and `not`.
    """

    kind: Kind
    text: str
    holds: bool | None
    value: Any = None
    error: str | None = None
    sees: tuple[tuple[str, Any], ...] = ()
    terms: tuple[Term, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The term as plain data for the wire."""
        shown: dict[str, Any] = {"kind": self.kind, "text": self.text, "holds": self.holds}
        if self.kind == "term":
            shown |= {"value": self.value, "sees": dict(self.sees)}
        else:
            shown["terms"] = [term.to_json() for term in self.terms]
        return shown if self.error is None else {**shown, "error": self.error}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The verdict on one event, what the whole filter gave, and its terms.

    `note` says what the terms do not: that the event was turned away by its name, or that a value other than the
    boolean true does not match.
    """

    matches: bool
    value: Any
    error: str | None
    note: str | None
    term: Term

    def to_json(self) -> dict[str, Any]:
        """The explanation as plain data for the wire."""
        return {
            "matches": self.matches,
            "value": self.value,
            "error": self.error,
            "note": self.note,
            "term": self.term.to_json(),
        }


def explain_expression(text: str, globals_: Globals) -> Explanation:
    """Explains a filter written as a Hog expression. Raises `FilterError` if it is none."""
    condition = parse_condition(text, "", ROOTS)
    expression = FilterExpression((condition,), (), events_only=False)
    return _explained(expression, _of_node(condition.node, globals_), globals_)


def explain_filter(
    filters: Mapping[str, Any] | None, context: FilterContext, globals_: Globals
) -> Explanation:
    """Explains the ``filters`` object of a function. Raises `FilterError` if it cannot be compiled."""
    expression = build_filter(filters, context)
    return _explained(expression, _Structure(filters or {}, context, globals_).term(), globals_)


def _explained(expression: FilterExpression, term: Term, globals_: Globals) -> Explanation:
    compiled = CompiledFilter(expression)
    try:
        value = compiled.value(globals_)
        matches, error = compiled.matches(globals_), None
    except FilterFailure as failure:
        value, matches, error = None, False, str(failure)
    names = expression.event_names if expression.events_only else None
    note = None
    if names is not None and globals_["event"] not in names:
        matches, error = False, None
        note = "The event's name is not among those of the filter: it is turned away before anything else."
    elif error is None and value is not True and is_truthy(value):
        note = f"The filter gives {_shown(value)}; only the boolean true matches."
    return Explanation(matches, _json(value), error, note, term)


# --- structured filters


class _Structure:
    """Walks stored filters as `build_filter` does, keeping what each part says."""

    def __init__(self, filters: Mapping[str, Any], context: FilterContext, globals_: Globals) -> None:
        self.filters = filters
        self.context = context
        self.globals = globals_

    def term(self) -> Term:
        events, actions = self.filters.get("events") or [], self.filters.get("actions") or []
        activity = bool(events) and not actions and all(one.get("id") == ACTIVITY_EVENT for one in events)
        builder = PropertyBuilder(self.context, nested_keys=activity)
        terms: list[Term] = []
        if self.filters.get("filter_test_accounts") is True:
            terms += self.properties(
                list(self.context.test_account_filters), "test_account_filters", PropertyBuilder(self.context)
            )
        terms += self.properties(self.filters.get("properties"), "properties", builder)
        entries = [self.event(one, f"events[{at}]") for at, one in enumerate(events)]
        entries += [self.action(one, f"actions[{at}]") for at, one in enumerate(actions)]
        if entries:
            terms.append(_combined("any", "events and actions", entries))
        return _combined("all", "filters", terms)

    def event(self, item: Mapping[str, Any], path: str) -> Term:
        name = item.get("id")
        builder = PropertyBuilder(self.context, nested_keys=name == ACTIVITY_EVENT)
        terms = [self.name(name), *self.properties(item.get("properties"), f"{path}.properties", builder)]
        return _combined("all", f"{path}: {_shown(name) if name is not None else 'all events'}", terms)

    def name(self, name: str | None) -> Term:
        if name is None:
            return Term("term", "any event", holds=True, value=True)
        return self.single(f"event is {_shown(name)}", compare("==", field("event"), const(name)))

    def action(self, item: Mapping[str, Any], path: str) -> Term:
        builder = PropertyBuilder(self.context)
        own = self.properties(item.get("properties"), f"{path}.properties", builder)
        if "id" not in item:
            return _combined(
                "all", path, [Term("term", "no action is chosen", holds=False, value=False), *own]
            )
        steps = []
        for at, step in enumerate(steps_of(self.context.actions, item["id"], path)):
            event, asked = step_conditions(step, f"{path}.steps[{at}]", builder)
            terms = [self.name(event), *(_of_node(one.node, self.globals) for one in asked)]
            steps.append(_combined("all", f"step {at + 1}", terms))
        title = f"{path}: action {item.get('name') or item['id']}"
        chosen = _combined("any", "steps", steps) if steps else self.name(None)
        return _combined("all", title, [chosen, *own])

    def properties(self, raw: object, path: str, builder: PropertyBuilder) -> list[Term]:
        group = parse_filters(raw, path)
        if group.type == "OR":
            return [self.group(group, path, builder)]
        return [self.member(one, f"{path}[{at}]", builder) for at, one in enumerate(group.values)]

    def member(self, one: PropertyFilter | PropertyGroup, path: str, builder: PropertyBuilder) -> Term:
        if isinstance(one, PropertyGroup):
            return self.group(one, path, builder)
        condition: Condition = builder.leaf(one, path)
        if one.type == "hogql":
            return replace(_of_node(condition.node, self.globals), text=f"{path}: {_cut(one.key)}")
        return self.single(f"{path}: {_leaf_text(one)}", condition.node)

    def group(self, group: PropertyGroup, path: str, builder: PropertyBuilder) -> Term:
        terms = [self.member(one, f"{path}[{at}]", builder) for at, one in enumerate(group.values)]
        if not terms:
            return Term("term", f"{path}: nothing is asked", holds=True, value=True)
        return _combined("all" if group.type == "AND" else "any", path, terms)

    def single(self, text: str, node: Expr) -> Term:
        return _evaluated(text, node, self.globals)


def _leaf_text(leaf: PropertyFilter) -> str:
    """A property filter in words: `person plan is_not "free"`."""
    place = f"{leaf.type} {leaf.key}"
    if leaf.group_type_index is not None:
        place = f"{leaf.type} {leaf.group_type_index} {leaf.key}"
    value = f" {_shown(leaf.value)}" if "value" in leaf.given else ""
    return _cut(f"{'not ' * leaf.negation}{place} {leaf.operator}{value}")


# --- expressions


def _of_node(node: Expr, globals_: Globals) -> Term:
    """The terms of an expression: what `and`, `or` and `not` join, each evaluated alone."""
    parts = _parts(node)
    if parts is None:
        return _evaluated(_text(node), node, globals_)
    kind, exprs = parts
    return _combined(kind, _text(node), [_of_node(one, globals_) for one in exprs])


def _parts(node: Expr) -> tuple[Kind, Sequence[Expr]] | None:
    if isinstance(node, n.And):
        return "all", node.exprs
    if isinstance(node, n.Or):
        return "any", node.exprs
    if isinstance(node, n.Not):
        return "not", [node.expr]
    return None


def _text(node: Expr) -> str:
    try:
        return _cut(write(node))
    except TypeError:
        return "an expression"


def _evaluated(text: str, node: Expr, globals_: Globals) -> Term:
    sees = tuple(_seen(node, globals_))
    try:
        value = CompiledFilter(FilterExpression((Condition(node),), (), events_only=False)).value(globals_)
    except FilterFailure as failure:
        return Term("term", text, holds=None, error=str(failure), sees=sees)
    return Term("term", text, holds=is_truthy(value), value=_json(value), sees=sees)


def _combined(kind: Kind, text: str, terms: Sequence[Term]) -> Term:
    """A term of terms. As in the running filter, one that fails makes the whole fail (spec: hog-runtime 2.2)."""
    holds: bool | None
    if any(term.holds is None for term in terms):
        holds = None
    elif kind == "not":
        holds = not terms[0].holds
    else:
        holds = all(term.holds for term in terms) if kind == "all" else any(term.holds for term in terms)
    return Term(kind, text, holds, terms=tuple(terms))


def _seen(node: Expr, globals_: Globals) -> Iterator[tuple[str, Any]]:
    """The values of the event that an expression looks at; whole objects are named, not shown."""
    for path in sorted(read_paths(node, resolve(node, ""))):
        value: Any = globals_
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if path[0] in ROOTS:
            yield ".".join(path), "{...}" if isinstance(value, Mapping) else _json(value)


def _json(value: Any) -> Any:
    return to_json(value)


def _shown(value: Any) -> str:
    return json.dumps(_json(value), ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 3]}..."
