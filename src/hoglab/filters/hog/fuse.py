"""Many conjunctions of conditions as one generated Python function.

The function is a decision tree. Comparisons of one property with texts become one look-up in a table, which
decides any number of cases; of other conditions the most shared one comes first; small patterns on one property
run together as one RE2 set. Only the common kinds of values are decided in generated code: for any other value the
condition's own compiled expression is asked, so that the tree answers exactly what the cases would alone.

The code is made as compiled programs are: of `ast` objects, whose constants are all that people wrote, and looked at
once more before it runs (`hoglab.hog.backend_python`).
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hoglab.filters.hog.compiled import Globals, condition_function
from hoglab.filters.hog.conditions import Chain, Predicate
from hoglab.filters.hog.patterns import PatternSet
from hoglab.hog.codegen import (
    Constants,
    all_of,
    any_of,
    assemble,
    assign,
    call,
    choose,
    compare,
    const,
    function,
    is_class,
    item,
    method,
    name,
    run,
    store,
)
from hoglab.hog.nodes import Expr
from hoglab.hog.values import LONG, compile_regex, free_of_charge
from hoglab.patterns import escape

MAX_NESTING = 12
"""Nested tests in one generated function; deeper ones go into a function of their own."""

MAX_CASES = 2_000
"""Cases decided by one generated function; more are split."""

SET_FROM = 3
"""Minimum number of patterns on one property that run together."""

SEARCH_FROM = 3
"""Minimum number of cases, comparing one property with a number, that a search replaces."""

TEXTS_FROM = 8
"""Minimum number of different texts, looked for in one property, that are searched for together."""

MAX_TEXTS = 32_768
"""Characters of texts that are searched for together; more are looked for one by one."""

FILE_NAME = "<filters>"
"""The file name of generated code in tracebacks."""

_NAMES: dict[str, Any] = {
    "append": list.append,
    "bisect_left": bisect_left,
    "dict": dict,
    "extend": list.extend,
    "float": float,
    "int": int,
    "no_members": {},
    "size": len,
    "str": str,
}
"""The names of generated code, besides its own variables, functions and constants."""

_ORDER: dict[str, type[ast.cmpop]] = {"<": ast.Lt, "<=": ast.LtE, ">": ast.Gt, ">=": ast.GtE}

Find = Callable[[Globals, list[int]], None]


@dataclass(frozen=True, slots=True)
class FilterCase:
    """A filter's place and the decisions that must all hold. None of them may fail on any event."""

    place: int
    decisions: tuple[Predicate, ...]


def fuse(cases: Sequence[FilterCase]) -> Find:
    """Return a function that appends to a list the places of the cases that hold for some globals.

    It raises what conditions raise; what it has found until then is of no use.
    """
    parts = [_fused(cases[start : start + MAX_CASES]) for start in range(0, len(cases), MAX_CASES)]
    if len(parts) == 1:
        return parts[0]

    def find(globals_: Globals, hits: list[int]) -> None:
        for part in parts:
            part(globals_, hits)

    return find


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    """A case and what of it is still undecided."""

    place: int
    left: frozenset[Predicate]

    def text_on(self, chain: Chain) -> Predicate | None:
        """Return a comparison of a property with a text."""
        for predicate in self.left:
            if predicate.kind == "text" and not predicate.negated and predicate.chain == chain:
                return predicate
        return None

    def only(self) -> Predicate | None:
        """Return the decision that the case waits for, if there is just one."""
        (only,) = self.left if len(self.left) == 1 else (None,)
        return only


def _fused(cases: Sequence[FilterCase]) -> Find:
    known: dict[object, Predicate] = {}  # decisions that are alike are one
    pending = [
        _Pending(
            case.place, frozenset(known.setdefault(decision.key, decision) for decision in case.decisions)
        )
        for case in cases
    ]
    generator = _Generator()
    return generator.link(generator.function(pending))


Entry = tuple[tuple[int, ...], str | None]
"""Entry of a text: cases that hold, and the name of a function for those that need more."""


class _Generator:
    """The functions of one module, and the objects that they name."""

    def __init__(self) -> None:
        self.constants = Constants()
        self._functions: dict[str, ast.stmt] = {}
        self._tables: list[tuple[dict[str, Any], dict[str, Entry]]] = []
        self._numbers = 0

    def link(self, wanted: str) -> Find:
        """Make the functions; ``wanted`` is the name of the one to give."""
        own = {*self.constants.values, *self._functions}
        code = assemble([*self._functions.values()], FILE_NAME, _NAMES.keys(), own)
        namespace: dict[str, Any] = {"__builtins__": {}, **_NAMES, **self.constants.values}
        exec(code, namespace)  # noqa: S102 - the code was made from `ast` objects and verified
        for table, entries in self._tables:
            for text, (places, more) in entries.items():
                table[text] = (places, None if more is None else namespace[more])
        find: Find = namespace[wanted]
        return find

    def fresh(self, prefix: str) -> str:
        self._numbers += 1
        return f"{prefix}{self._numbers}"

    def function(self, pending: Sequence[_Pending]) -> str:
        """Return a function that decides the cases; returns its name."""
        identifier = self.fresh("f")
        block = _Block(self)
        block.decide([*pending], 1)
        self._functions[identifier] = function(identifier, ("g", "r"), (), block.statements or [ast.Pass()])
        return identifier

    def table(self, entries: dict[str, Entry]) -> dict[str, Any]:
        """Return a table of what texts decide, filled when the functions are there."""
        table: dict[str, Any] = {}
        self._tables.append((table, entries))
        return table


class _Block:
    """Statements in a row, and the local names that hold a value behind them."""

    def __init__(self, generator: _Generator, outer: _Block | None = None) -> None:
        self.generator = generator
        self.statements: list[ast.stmt] = []
        # what is known of a property: its value, its members, its text in lower case
        self.known: dict[tuple[str, Chain], str] = {} if outer is None else dict(outer.known)
        # for patterns that run in a set: the local name of the set's answer, and the pattern's number in it
        self.in_set: dict[Predicate, tuple[str, int]] = {} if outer is None else dict(outer.in_set)

    # --- the tree

    def decide(self, pending: list[_Pending], depth: int) -> None:
        """Add statements that decide some cases."""
        if done := [case.place for case in pending if not case.left]:
            self.holds(done)
        left = [case for case in pending if case.left]
        if left and depth > MAX_NESTING:
            self.statements.append(run(call(self.generator.function(left), name("g"), name("r"))))
            return
        while left and (chain := _most_compared(left)) is not None:
            self.look_up(chain, [case for case in left if case.text_on(chain) is not None])
            left = [case for case in left if case.text_on(chain) is None]
        self.search_sets(left)
        left = self.held_texts(self.thresholds(self.found_patterns(left)))
        while left:
            decision = _most_shared(left)
            condition = self.condition(decision)
            inner = _Block(self.generator, self)
            inner.decide(
                [_Pending(case.place, case.left - {decision}) for case in left if decision in case.left],
                depth + 1,
            )
            left = [case for case in left if decision not in case.left]
            self.statements.append(ast.If(condition, inner.statements, []))

    def holds(self, places: Sequence[int]) -> None:
        """Add statements that record cases that hold."""
        if len(places) == 1:
            self.statements.append(run(call("append", name("r"), const(places[0]))))
        else:
            self.statements.append(_extend(const(tuple(places))))

    def look_up(self, chain: Chain, chosen: Sequence[_Pending]) -> None:
        """Decide all cases that compare a property with a text by looking its value up."""
        groups: dict[str, list[_Pending]] = {}
        spellings: dict[object, dict[str, None]] = {}
        for case in chosen:
            decision = case.text_on(chain)
            if decision is not None:
                if decision.spelt is not None:
                    spellings.setdefault(_spelt_key(decision.spelt), {})[decision.operand] = None
                groups.setdefault(decision.operand, []).append(_Pending(case.place, case.left - {decision}))
        entries: dict[str, Entry] = {}
        for text, members in groups.items():
            more = [case for case in members if case.left]
            entries[text] = (
                tuple(case.place for case in members if not case.left),
                self.generator.function(more) if more else None,
            )
        table = self.generator.table(entries)
        value, hit = self.value(chain), self.generator.fresh("h")
        more_of_it = item(name(hit), const(1))
        matched = [
            _extend(item(name(hit), const(0))),
            ast.If(_is_not_null(more_of_it), [run(ast.Call(more_of_it, [name("g"), name("r")], []))], []),
        ]
        odd = run(call(self.constant(_by_spelling(table, spellings)), name("g"), name("r"), name(value)))
        look = assign(store(hit), call(self.constant(table.get), name(value)))
        self.statements.append(
            ast.If(
                _is_text(value),
                [look, ast.If(_is_not_null(name(hit)), matched, [])],
                [ast.If(_is_not_null(name(value)), [odd], [])],
            )
        )

    def search_sets(self, pending: Sequence[_Pending]) -> None:
        """Add statements that run together the patterns that several cases need of one property."""
        patterns: dict[Chain, dict[Predicate, None]] = {}
        for case in pending:
            for decision in case.left:
                if decision.kind == "regex" and PatternSet.fits(decision.operand):
                    patterns.setdefault(decision.chain, {})[decision] = None
        for chain, decisions in patterns.items():
            if len(decisions) < SET_FROM:
                continue
            value, answers = self.value(chain), self.generator.fresh("s")
            search = self.constant(PatternSet([decision.operand for decision in decisions]).search)
            answer = choose(_is_text(value), call(search, name(value)), const(()))
            self.statements.append(assign(store(answers), answer))
            self.in_set.update({decision: (answers, number) for number, decision in enumerate(decisions)})

    def found_patterns(self, pending: list[_Pending]) -> list[_Pending]:
        """Decide the cases that wait only for one pattern of a set: few of its patterns match. Returns the others."""
        sets: dict[str, dict[int, list[int]]] = {}
        others = []
        for case in pending:
            decision = case.only()
            if decision is None or decision.negated or decision not in self.in_set:
                others.append(case)
                continue
            answers, number = self.in_set[decision]
            sets.setdefault(answers, {}).setdefault(number, []).append(case.place)
        for answers, numbered in sets.items():
            get = self.constant({number: tuple(cases) for number, cases in numbered.items()}.get)
            held = _extend(call(get, name("n"), const(())))
            self.statements.append(ast.For(store("n"), name(answers), [held], []))
        return others

    def thresholds(self, pending: list[_Pending]) -> list[_Pending]:
        """Decide the cases that wait only for `property > number`, by one search. Returns the others."""
        groups = _by_property(
            pending, lambda predicate: predicate.kind == "number" and predicate.operand[0] == ">"
        )
        decided: set[int] = set()
        for chain, cases in groups.items():
            if len(cases) < SEARCH_FROM:
                continue
            decided.update(place for _, place in cases)
            cases.sort(key=lambda case: case[0].operand[1])
            numbers = self.constant([decision.operand[1] for decision, _ in cases])
            places = self.constant([place for _, place in cases])
            value = self.value(chain)
            below = item(places, ast.Slice(None, call("bisect_left", numbers, name(value))))
            self.statements.append(
                ast.If(_is_number(value), [_extend(below)], [self.each_asked(cases, value)])
            )
        return [case for case in pending if case.place not in decided]

    def held_texts(self, pending: list[_Pending]) -> list[_Pending]:
        """Decide the cases that wait only for a text inside of a property, by one search. Returns the others."""
        groups = _by_property(
            pending,
            lambda predicate: (
                predicate.kind == "contains" and not predicate.negated and _is_plain(predicate.operand)
            ),
        )
        decided: set[int] = set()
        for chain, cases in groups.items():
            places: dict[str, list[int]] = {}
            for decision, place in cases:
                places.setdefault(decision.operand, []).append(place)
            patterns = [escape(text) for text in places]
            if len(places) < TEXTS_FROM or sum(map(len, patterns)) > MAX_TEXTS:
                continue
            decided.update(place for _, place in cases)
            value, lowered = self.value(chain), self.lowered(chain)
            get = self.constant(dict(enumerate(map(tuple, places.values()))).get)
            search = call(self.constant(PatternSet(patterns).search), name(lowered))
            loop = ast.For(store("n"), search, [_extend(call(get, name("n")))], [])
            self.statements.append(
                ast.If(_is_not_null(name(lowered)), [loop], [self.each_asked(cases, value)])
            )
        return [case for case in pending if case.place not in decided]

    def each_asked(self, cases: Sequence[tuple[Predicate, int]], value: str) -> ast.stmt:
        """Evaluate each case's own expression, for a value that is not of the common kind."""
        asked = self.constant(
            _by_asking([(decision, _when_needed(decision.node), place) for decision, place in cases])
        )
        return run(call(asked, name("g"), name("r"), name(value)))

    # --- values of properties

    def value(self, chain: Chain) -> str:
        """Return the local name of a property's value."""
        known = self.known.get(("value", chain))
        if known is not None:
            return known
        if len(chain) == 1:
            return self.keep("value", chain, item(name("g"), const(chain[0])))
        members = name(self.members(chain[:-1]))
        return self.keep("value", chain, method(members, "get", const(chain[-1])))

    def members(self, chain: Chain) -> str:
        """Return the local name of an object on the way to a property, an empty one where there is none."""
        known = self.known.get(("members", chain))
        if known is not None:
            return known
        value = self.value(chain)
        members = choose(is_class(name(value), "dict"), name(value), name("no_members"))
        return self.keep("members", chain, members)

    def lowered(self, chain: Chain) -> str:
        """Return the local name of a short text in lower case, null where there is none."""
        known = self.known.get(("lower", chain))
        if known is not None:
            return known
        value = self.value(chain)
        lowered = choose(_is_short(value), method(name(value), "lower"), const(None))
        return self.keep("lower", chain, lowered)

    def keep(self, what: str, chain: Chain, value: ast.expr) -> str:
        variable = self.known[what, chain] = self.generator.fresh("v")
        self.statements.append(assign(store(variable), value))
        return variable

    def constant(self, value: Any) -> ast.expr:
        return self.generator.constants.add(value)

    # --- conditions

    def condition(self, decision: Predicate) -> ast.expr:
        """Return the condition itself; what it needs first is added before."""
        if decision.kind == "plain":
            return self.asked(decision)
        value = self.value(decision.chain)
        if decision.kind == "set":
            return compare(name(value), ast.Is() if decision.negated else ast.IsNot(), const(None))
        common, is_common = self.common(decision, value)
        other = choose(_is_null(value), const(decision.when_null), self.asked(decision))
        return choose(is_common, common, other)

    def asked(self, decision: Predicate) -> ast.expr:
        """Return the answer of the condition's own expression."""
        return call(self.constant(_when_needed(decision.node)), name("g"))

    def common(self, decision: Predicate, value: str) -> tuple[ast.expr, ast.expr]:
        """Return the answer for the common kind of values, and whether the value is of that kind."""
        operand = decision.operand
        among = ast.NotIn() if decision.negated else ast.In()
        is_text = _is_text(value)
        match decision.kind:
            case "text":
                same = ast.NotEq() if decision.negated else ast.Eq()
                return compare(name(value), same, const(operand)), is_text
            case "texts":
                return compare(name(value), among, const(operand)), is_text
            case "contains":
                lowered = self.lowered(decision.chain)
                return compare(const(operand), among, name(lowered)), _is_not_null(name(lowered))
            case "regex" if decision in self.in_set:
                answers, number = self.in_set[decision]
                return compare(const(number), among, name(answers)), is_text
            case "regex":
                match = self.found(operand, value)
                answer = ast.UnaryOp(ast.Not(), match) if decision.negated else match
                return answer, _is_short(value)
        relation, number = operand
        return compare(name(value), _ORDER[relation](), const(number)), _is_number(value)

    def found(self, pattern: str, value: str) -> ast.expr:
        """Return whether a pattern is found in a text; an empty text never matches."""
        matcher = compile_regex(pattern)
        search = call(self.constant(matcher.search), name(value))
        literals = matcher.literals
        if literals is None:
            return all_of([name(value), search])
        held = any_of([compare(const(text), ast.In(), name(value)) for text in literals.texts])
        return held if literals.exact else all_of([held, search])


def _extend(places: ast.expr) -> ast.stmt:
    return run(call("extend", name("r"), places))


def _is_not_null(value: ast.expr) -> ast.expr:
    return compare(value, ast.IsNot(), const(None))


@lru_cache(maxsize=4_096)
def _is_null(value: str) -> ast.expr:
    return compare(name(value), ast.Is(), const(None))


# Local names come again and again, also in the next module: what is asked of them is one node.


@lru_cache(maxsize=4_096)
def _is_text(value: str) -> ast.expr:
    return is_class(name(value), "str")


def _is_plain(text: str) -> bool:
    """Return whether a text is in no text but where it is written in full: not empty, and no half of a character."""
    return bool(text) and not any("\ud800" <= character <= "\udfff" for character in text)


@lru_cache(maxsize=4_096)
def _is_number(value: str) -> ast.expr:
    return any_of([is_class(name(value), "int"), is_class(name(value), "float")])


@lru_cache(maxsize=4_096)
def _is_short(value: str) -> ast.expr:
    """Return whether a value is a text that is searched for nothing.

    The condition's own expression is charged for others.
    """
    is_short = compare(call("size", name(value)), ast.Lt(), const(LONG))
    return all_of([_is_text(value), is_short])


def _when_needed(node: Expr) -> Callable[[Globals], Any]:
    """Return an expression that is compiled when it is first asked; most never are, because values are as expected."""
    compiled: Callable[[Globals], Any] | None = None

    def ask(globals_: Globals) -> Any:
        nonlocal compiled
        if compiled is None:
            compiled = free_of_charge(lambda: condition_function(node))
        return compiled(globals_)

    return ask


def _by_property(
    pending: Sequence[_Pending], fits: Callable[[Predicate], bool]
) -> dict[Chain, list[tuple[Predicate, int]]]:
    """Return the cases that wait only for one decision that fits, with their places, by its property."""
    groups: dict[Chain, list[tuple[Predicate, int]]] = {}
    for case in pending:
        decision = case.only()
        if decision is not None and fits(decision):
            groups.setdefault(decision.chain, []).append((decision, case.place))
    return groups


def _most_shared(pending: Sequence[_Pending]) -> Predicate:
    """Return the decision that most cases wait for."""
    return Counter(decision for case in pending for decision in case.left).most_common(1)[0][0]


def _most_compared(pending: Sequence[_Pending]) -> Chain | None:
    """Return the property that most cases compare with a text, None when no two do."""
    counts: Counter[Chain] = Counter()
    for case in pending:
        counts.update(
            {decision.chain for decision in case.left if decision.kind == "text" and not decision.negated}
        )
    if not counts:
        return None
    chain, count = counts.most_common(1)[0]
    return chain if count > 1 else None


def _by_asking(
    cases: Sequence[tuple[Predicate, Callable[[Globals], Any], int]],
) -> Callable[[Globals, list[int], Any], None]:
    """Return the fallback of a search for a value that it is not made for: each case's own expression is evaluated."""

    def find(globals_: Globals, hits: list[int], value: Any) -> None:
        for decision, ask, place in cases:
            if decision.when_null if value is None else ask(globals_):
                hits.append(place)

    return find


def _by_spelling(
    table: dict[str, Any], spellings: Mapping[object, Iterable[str]]
) -> Callable[[Globals, list[int], Any], None]:
    """Return the fallback of a table for a value that is no text: several of its texts may spell the value."""

    def find(globals_: Globals, hits: list[int], value: Any) -> None:
        for text in spellings.get(_spelt_key(value), ()):
            places, more = table[text]
            hits.extend(places)
            if more is not None:
                more(globals_, hits)

    return find


def _spelt_key(value: Any) -> object:
    """Return a key that two numbers or booleans share exactly if they are the same; other values equal no text."""
    if value.__class__ is bool:
        return "boolean", value
    return value if value.__class__ is int or value.__class__ is float else None
