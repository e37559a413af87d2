"""Conditions of a filter: a labelled tree, from which it is run, explained and fused.

A condition has the Hog expression that decides it (`node`) and, where it is of a well-known kind, says so in data
(`decisions`): so nobody has to read the expression again to learn what it means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from hoglab.filters.hog.environment import FILTER_ROOTS
from hoglab.filters.hog.tree import NULL, TRUE, all_of, any_of, call, compare, const, negate, tuple_
from hoglab.hog import nodes
from hoglab.hog.values import compile_regex, ge, gt, le, like_matcher, lt

if TYPE_CHECKING:
    from hoglab.filters.model import PropertyFilter
    from hoglab.hog.nodes import Expr

Chain = tuple[str, ...]

Kind = Literal["plain", "set", "text", "texts", "contains", "regex", "number"]
"""Kind of a condition on a property: of no known kind; whether it is there; compared with one text or several;
searched for a text (whatever the case) or a pattern; compared with a number."""

ORDER: Mapping[str, Callable[[Any, Any], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}


@dataclass(frozen=True, slots=True, eq=False)
class Predicate:
    """One way of looking at an event.

    ``operand`` is what a property is compared with; ``negated``: it holds if that fails.

    ``spelt`` is the number or boolean that equals a condition of kind ``text``, too: the one that its text spells.

    ``when_null`` is the answer where the property is null or missing. Two decisions with the same ``key`` are alike.
    """

    node: Expr
    chain: Chain = ()
    kind: Kind = "plain"
    operand: Any = None
    negated: bool = False
    when_null: bool = False
    spelt: float | bool | None = None

    @property
    def key(self) -> object:
        if self.kind == "plain":
            return _shape(self.node)
        return self.kind, self.chain, self.operand, self.negated


# --- the tree


@dataclass(frozen=True, slots=True)
class Leaf:
    """One condition. ``decisions`` must all hold for ``node`` to hold, and it holds if they do.

    ``path`` and ``asked`` are where it is stored, and what is there: the label of explanations. ``infallible``: it
    cannot fail, whatever the event looks like. ``written``: people wrote it as an expression, the parts of which are
    explained.
    """

    node: Expr
    decisions: tuple[Predicate, ...] = ()
    path: str = ""
    asked: PropertyFilter | None = None
    infallible: bool = True
    written: bool = False


@dataclass(frozen=True, slots=True)
class AllOf:
    """A group: all of its parts must hold."""

    parts: tuple[Condition, ...]
    path: str = ""

    @property
    def node(self) -> Expr:
        return all_of([part.node for part in self.parts])

    @property
    def decisions(self) -> tuple[Predicate, ...]:
        return tuple(decision for part in self.parts for decision in part.decisions)

    @property
    def infallible(self) -> bool:
        return all(part.infallible for part in self.parts)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """A group: any of its parts must hold; one without parts asks nothing."""

    parts: tuple[Condition, ...]
    path: str = ""

    @property
    def node(self) -> Expr:
        return any_of([part.node for part in self.parts]) if self.parts else TRUE

    @property
    def decisions(self) -> tuple[Predicate, ...]:
        return either(self.parts).decisions if self.parts else ()

    @property
    def infallible(self) -> bool:
        return all(part.infallible for part in self.parts)


Condition = Leaf | AllOf | AnyOf

NOTHING = Leaf(TRUE)
"""The condition that asks nothing."""


def both(parts: Sequence[Condition]) -> Leaf:
    """Return all of some conditions as one."""
    group = AllOf(tuple(parts))
    return Leaf(group.node, group.decisions)


def either(parts: Sequence[Condition]) -> Leaf:
    """Return a condition of which any of some conditions must hold."""
    if len(parts) == 1:
        return Leaf(parts[0].node, parts[0].decisions)
    return plain(any_of([part.node for part in parts]))


def negated(condition: Condition) -> Leaf:
    """Return the opposite of a condition."""
    node = negate(condition.node)
    match condition.decisions:
        case (Predicate(kind="regex") as predicate,):
            opposite = replace(
                predicate, node=node, negated=not predicate.negated, when_null=not predicate.when_null
            )
            return Leaf(node, (opposite,))
    return plain(node)


# --- conditions of well-known kinds


def plain(node: Expr) -> Leaf:
    """Return a condition of no known kind."""
    return Leaf(node, (Predicate(node),))


def is_set(place: Expr) -> Leaf:
    """Return whether a property is there and not null."""
    return _known(compare("!=", place, NULL), _chain(place), "set", None)


def is_not_set(place: Expr) -> Leaf:
    """Return whether a property is missing or null."""
    return _known(compare("==", place, NULL), _chain(place), "set", None, negated=True, when_null=True)


def same_text(place: Expr, text: str) -> Leaf:
    """Return whether something that is always a text, such as the name of an event, is a text."""
    return _known(compare("==", place, const(text)), _chain(place), "text", text)


def among(place: Expr, texts: Mapping[str, float | bool | None], *, negated: bool = False) -> Leaf:
    """Return whether a property is (not) one of some texts, or a number or boolean that one of them spells.

    ``texts`` has the value that each spells. Compared by the rules of `in`: nothing is converted.
    """
    others = [value for value in texts.values() if value is not None]
    node = compare("not in" if negated else "in", place, tuple_([*texts, *others]))
    if len(texts) > 1:
        return _known(node, _chain(place), "texts", frozenset(texts), negated=negated, when_null=negated)
    ((text, spelt),) = texts.items()
    return _known(node, _chain(place), "text", text, negated=negated, when_null=negated, spelt=spelt)


def contains(place: Expr, pattern: str, *, negated: bool = False) -> Leaf:
    """Return whether the text of a property is (not) like a pattern of `ilike`."""
    node = compare("not ilike" if negated else "ilike", text_of(place), const(pattern))
    wanted = like_matcher(pattern, True)
    if not isinstance(wanted, str):
        return plain(node)
    in_null = wanted in "null"
    return _known(node, _chain(place), "contains", wanted, negated=negated, when_null=in_null is not negated)


def matches(place: Expr, pattern: str) -> Leaf:
    """Return whether the text of a property holds what a regular expression describes."""
    node = call("match", text_of(place), const(pattern))
    if not pattern:
        return plain(node)
    return _known(node, _chain(place), "regex", pattern, when_null=compile_regex(pattern).search("null"))


NUMBER_TEXT = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
"""Text that is a number, as flags read it; JSON has no infinite ones."""


def ordered(op: str, place: Expr, value: float) -> Leaf:
    """Return whether a property is a number, or text of one, before or behind a number.

    Nothing else is before or behind it: the operator alone would compare true, null and lists, too. The number of a
    condition may be written as text; it is still compared as a number, as in flags, where PostHog's programs
    compare two texts as texts (spec: hog-runtime 2.9).
    """
    node = all_of([call("match", text_of(place), const(NUMBER_TEXT)), compare(op, place, const(value))])
    return _known(node, _chain(place), "number", (op, value))


def text_of(place: Expr) -> Expr:
    return call("toString", place)


def _known(
    node: Expr,
    chain: Chain | None,
    kind: Kind,
    operand: Any,
    *,
    negated: bool = False,
    when_null: bool = False,
    spelt: float | bool | None = None,
) -> Leaf:
    """Return a condition of a known kind if what it looks at is a property, else a plain one."""
    if chain is None:
        return plain(node)
    return Leaf(node, (Predicate(node, chain, kind, operand, negated, when_null, spelt),))


def _chain(place: Expr) -> Chain | None:
    return place.chain if isinstance(place, nodes.Field) and place.chain[0] in FILTER_ROOTS else None


def _shape(node: nodes.Node) -> tuple[Any, ...]:
    """Return a hashable value that two trees share exactly if they are alike, wherever they stand."""
    members = (_shape_of(getattr(node, name)) for name in nodes.field_names(type(node)))
    return (type(node).__name__, *members)


def _shape_of(value: Any) -> Any:
    if isinstance(value, nodes.Node):
        return _shape(value)
    if value.__class__ is tuple:
        return tuple(_shape_of(item) for item in value)
    return (value.__class__.__name__, repr(value))  # 1, 1.0 and True are different constants
