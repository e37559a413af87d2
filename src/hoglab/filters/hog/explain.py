"""Explanation of a filter's verdict on an event: every term with its value and the values that it read.

The verdict is that of the filter as it runs; the terms are evaluated one by one beside it, so that one that fails
does not hide the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from hoglab.filters.hog.compiled import CompiledFilter, FilterFailure
from hoglab.filters.hog.conditions import AllOf, Leaf, plain
from hoglab.filters.hog.environment import FILTER_ROOTS
from hoglab.filters.hog.expression import FilterExpression, build_filter
from hoglab.filters.hog.source import parse_condition
from hoglab.hog import nodes as n
from hoglab.hog import to_json
from hoglab.hog.codegen import read_paths, resolve, write
from hoglab.hog.values import is_truthy

if TYPE_CHECKING:
    from hoglab.filters.hog.compiled import Globals
    from hoglab.filters.hog.conditions import Condition
    from hoglab.filters.hog.expression import Branch, EventAlternative
    from hoglab.filters.hog.properties import FilterContext
    from hoglab.filters.model import PropertyFilter
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
        """Return the term as plain data for the wire."""
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
        """Return the explanation as plain data for the wire."""
        return {
            "matches": self.matches,
            "value": self.value,
            "error": self.error,
            "note": self.note,
            "term": self.term.to_json(),
        }


def explain_expression(text: str, globals_: Globals) -> Explanation:
    """Explain a filter written as a Hog expression. Raises `FilterError` if it is none."""
    condition = parse_condition(text, "", FILTER_ROOTS)
    expression = FilterExpression((condition,), (), events_only=False)
    return _explained(expression, _of_node(condition.node, globals_), globals_)


def explain_filter(
    filters: Mapping[str, Any] | None, context: FilterContext, globals_: Globals
) -> Explanation:
    """Explain the ``filters`` object of a function. Raises `FilterError` if it cannot be compiled."""
    expression = build_filter(filters, context)
    return _explained(expression, _of_filter(expression, globals_), globals_)


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


def _of_filter(expression: FilterExpression, globals_: Globals) -> Term:
    """Return the terms of a filter: what must hold in any case, and the entries of which one must."""
    terms = [_of_condition(condition, globals_) for condition in expression.required]
    if expression.entries:
        entries = [_of_entry(entry, globals_) for entry in expression.entries]
        terms.append(_combined("any", "events and actions", entries))
    return _combined("all", "filters", terms)


def _of_entry(entry: EventAlternative, globals_: Globals) -> Term:
    own = [_of_condition(condition, globals_) for condition in entry.conditions]
    if entry.of_steps:
        steps = [
            _combined("all", f"step {number}", _of_branch(branch, globals_))
            for number, branch in enumerate(entry.branches, 1)
        ]
        chosen = [_combined("any", "steps", steps)]
    else:
        (branch,) = entry.branches
        chosen = _of_branch(branch, globals_)
    return _combined("all", f"{entry.path}: {entry.title}" if entry.title else entry.path, [*chosen, *own])


def _of_branch(branch: Branch, globals_: Globals) -> list[Term]:
    terms = [_of_condition(condition, globals_) for condition in branch.conditions]
    if branch.never:
        return [Term("term", "no action is chosen", holds=False, value=False), *terms]
    if branch.name is None:
        return [Term("term", "any event", holds=True, value=True), *terms]
    return [_evaluated(f"event is {_shown(branch.event)}", branch.name.node, globals_), *terms]


def _of_condition(condition: Condition, globals_: Globals) -> Term:
    if isinstance(condition, Leaf):
        return _of_leaf(condition, globals_)
    if not condition.parts:
        return Term("term", f"{condition.path}: nothing is asked", holds=True, value=True)
    kind: Kind = "all" if isinstance(condition, AllOf) else "any"
    return _combined(kind, condition.path, [_of_condition(part, globals_) for part in condition.parts])


def _of_leaf(leaf: Leaf, globals_: Globals) -> Term:
    if leaf.asked is None:
        return _of_node(leaf.node, globals_)
    if leaf.written:
        return replace(_of_node(leaf.node, globals_), text=f"{leaf.path}: {_cut(leaf.asked.key)}")
    return _evaluated(f"{leaf.path}: {_leaf_text(leaf.asked)}", leaf.node, globals_)


def _leaf_text(leaf: PropertyFilter) -> str:
    """Return a property filter in words: `person plan is_not "free"`."""
    place = f"{leaf.type} {leaf.key}"
    if leaf.group_type_index is not None:
        place = f"{leaf.type} {leaf.group_type_index} {leaf.key}"
    value = f" {_shown(leaf.value)}" if "value" in leaf.given else ""
    return _cut(f"{'not ' * leaf.negation}{place} {leaf.operator}{value}")


# --- expressions


def _of_node(node: Expr, globals_: Globals) -> Term:
    """Return the terms of an expression: what `and`, `or` and `not` join, each evaluated alone."""
    parts = _parts(node)
    if parts is None:
        return _evaluated(_text(node), node, globals_)
    kind, exprs = parts
    return _combined(kind, _text(node), [_of_node(expr, globals_) for expr in exprs])


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
        value = CompiledFilter(FilterExpression((plain(node),), (), events_only=False)).value(globals_)
    except FilterFailure as failure:
        return Term("term", text, holds=None, error=str(failure), sees=sees)
    return Term("term", text, holds=is_truthy(value), value=_json(value), sees=sees)


def _combined(kind: Kind, text: str, terms: Sequence[Term]) -> Term:
    """Return a term of terms. As in the running filter, one that fails makes the whole fail (spec: hog-runtime 2.2)."""
    holds: bool | None
    if any(term.holds is None for term in terms):
        holds = None
    elif kind == "not":
        holds = not terms[0].holds
    else:
        holds = all(term.holds for term in terms) if kind == "all" else any(term.holds for term in terms)
    return Term(kind, text, holds, terms=tuple(terms))


def _seen(node: Expr, globals_: Globals) -> Iterator[tuple[str, Any]]:
    """Yield the values of the event that an expression looks at; whole objects are named, not shown."""
    for path in sorted(read_paths(node, resolve(node, ""))):
        value: Any = globals_
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if path[0] in FILTER_ROOTS:
            yield ".".join(path), "{...}" if isinstance(value, Mapping) else _json(value)


def _json(value: Any) -> Any:
    return to_json(value)


def _shown(value: Any) -> str:
    return json.dumps(_json(value), ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 3]}..."
