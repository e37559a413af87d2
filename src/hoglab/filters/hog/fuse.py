"""Many conjunctions of conditions as one generated Python function.

The function is a decision tree. Comparisons of one property with texts become one look-up in a table, which
decides any number of cases; of other conditions the most shared one comes first; small patterns on one property
run together as one RE2 set. Only the common kinds of values are decided in generated code: for any other value the
condition's own compiled expression is asked, so that the tree answers exactly what the cases would alone.

The generated text holds names of our own making only. Whatever people wrote (keys, texts, numbers, patterns) is
reached through names ``k0``, ``k1``, … that are bound to values.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hoglab.filters.hog.compiled import Globals, condition_function
from hoglab.filters.hog.decisions import Chain, Decision, Decisions
from hoglab.filters.hog.patterns import PatternSet
from hoglab.hog.nodes import Expr
from hoglab.hog.rt.coerce import eq
from hoglab.hog.rt.context import LONG, free_of_charge
from hoglab.hog.rt.regex import compile_regex

MAX_NESTING = 12
"""Nested tests in one generated function; deeper ones go into a function of their own."""

MAX_CASES = 2_000
"""Cases decided by one generated function; more are split."""

SET_FROM = 3
"""From so many patterns on one property on, they run together."""

SEARCH_FROM = 3
"""From so many cases that compare one property with a number on, a search replaces the comparisons."""

Find = Callable[[Globals, list[int]], None]


@dataclass(frozen=True, slots=True)
class Case:
    """A filter's place and the conditions that must all hold. None of them may fail on any event."""

    place: int
    conditions: tuple[Expr, ...]


def fuse(cases: Sequence[Case]) -> Find:
    """A function that appends to a list the places of the cases that hold for some globals.

    It raises what conditions raise; what it has found until then is of no use.
    """
    parts = [_fused(cases[start : start + MAX_CASES]) for start in range(0, len(cases), MAX_CASES)]
    if len(parts) == 1:
        return parts[0]

    def find(globals_: Globals, found: list[int]) -> None:
        for part in parts:
            part(globals_, found)

    return find


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    """A case and what of it is still undecided."""

    place: int
    left: frozenset[Decision]

    def text_on(self, chain: Chain) -> Decision | None:
        """A comparison of a property with a text."""
        for one in self.left:
            if one.kind == "text" and not one.negated and one.chain == chain:
                return one
        return None


def _fused(cases: Sequence[Case]) -> Find:
    decisions = Decisions()
    pending = [_Pending(case.place, decisions.of(case.conditions)) for case in cases]
    generator = _Generator()
    return generator.link(generator.function(pending))


Entry = tuple[tuple[int, ...], str | None]
"""What a text decides: cases that hold, and the name of a function for those that need more."""


@dataclass(slots=True)
class _Names:
    """Local names that hold a value wherever the point of the code is reached."""

    known: dict[tuple[str, Chain], str] = field(default_factory=dict)
    sets: dict[Decision, str] = field(default_factory=dict)
    """For patterns that run in a set: the condition that the set's answer gives."""
    numbers: dict[Decision, tuple[str, int]] = field(default_factory=dict)
    """For patterns that run in a set: the local name of the answer, and the pattern's number in it."""

    def inner(self) -> _Names:
        return _Names(dict(self.known), dict(self.sets), dict(self.numbers))


class _Generator:
    """Writes functions and collects the values they name."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._values: dict[str, Any] = {
            "__builtins__": {},
            "bisect_left": bisect_left,
            "dict": dict,
            "float": float,
            "int": int,
            "no_members": {},
            "size": len,
            "str": str,
        }
        self._tables: list[tuple[dict[str, Any], dict[str, Entry]]] = []
        self._numbers = 0

    def link(self, name: str) -> Find:
        """Make the written functions; ``name`` is the one that is wanted."""
        code = compile("\n".join(self._lines), "<filters>", "exec", dont_inherit=True, optimize=2)
        exec(code, self._values)  # noqa: S102 - made of our own names and keywords only, see above
        for table, entries in self._tables:
            for text, (places, function) in entries.items():
                table[text] = (places, None if function is None else self._values[function])
        find: Find = self._values[name]
        return find

    def function(self, pending: Sequence[_Pending]) -> str:
        """Write a function that decides the cases, after those it calls; returns its name."""
        name = self._fresh("f")
        body = self._block(list(pending), _Names(), 1)
        self._lines += [f"def {name}(g, r):", *(body or ["    pass"])]
        return name

    def _fresh(self, prefix: str) -> str:
        self._numbers += 1
        return f"{prefix}{self._numbers}"

    def _value(self, value: Any) -> str:
        name = self._fresh("k")
        self._values[name] = value
        return name

    # --- the tree

    def _block(self, pending: list[_Pending], names: _Names, depth: int) -> list[str]:
        """Statements that decide some cases."""
        pad = "    " * depth
        lines: list[str] = []
        if done := [one.place for one in pending if not one.left]:
            add = f"r.append({done[0]:d})" if len(done) == 1 else f"r.extend({self._value(tuple(done))})"
            lines.append(f"{pad}{add}")
        left = [one for one in pending if one.left]
        if left and depth > MAX_NESTING:
            return [*lines, f"{pad}{self.function(left)}(g, r)"]
        while left and (chain := _most_compared(left)) is not None:
            chosen = [one for one in left if one.text_on(chain) is not None]
            lines += self._table(chain, chosen, names, pad)
            left = [one for one in left if one.text_on(chain) is None]
        lines += self._pattern_sets(left, names, pad)
        left = self._found_patterns(left, names, lines, pad)
        left = self._thresholds(left, names, lines, pad)
        while left:
            test = _most_shared(left)
            chosen = [_Pending(one.place, one.left - {test}) for one in left if test in one.left]
            left = [one for one in left if test not in one.left]
            condition = self._condition(test, names, lines, pad)
            lines.append(f"{pad}if {condition}:")
            lines += self._block(chosen, names.inner(), depth + 1)
        return lines

    def _table(self, chain: Chain, chosen: Sequence[_Pending], names: _Names, pad: str) -> list[str]:
        """Decide all cases that compare a property with a text by looking its value up."""
        groups: dict[str, list[_Pending]] = {}
        for one in chosen:
            test = one.text_on(chain)
            if test is not None:
                groups.setdefault(test.operand, []).append(_Pending(one.place, one.left - {test}))
        entries: dict[str, Entry] = {}
        for text, members in groups.items():
            more = [one for one in members if one.left]
            entries[text] = (
                tuple(one.place for one in members if not one.left),
                self.function(more) if more else None,
            )
        table: dict[str, Any] = {}
        self._tables.append((table, entries))
        lines: list[str] = []
        value = self._load(chain, names, lines, pad)
        hit = self._fresh("h")
        return [
            *lines,
            f"{pad}if {value}.__class__ is str:",
            f"{pad}    {hit} = {self._value(table.get)}({value})",
            f"{pad}    if {hit} is not None:",
            f"{pad}        r.extend({hit}[0])",
            f"{pad}        if {hit}[1] is not None: {hit}[1](g, r)",
            f"{pad}elif {value} is not None:",
            f"{pad}    {self._value(_by_comparison(table))}(g, r, {value})",
        ]

    def _pattern_sets(self, pending: Sequence[_Pending], names: _Names, pad: str) -> list[str]:
        """Run the patterns that several cases need of one property together."""
        patterns: dict[Chain, dict[Decision, None]] = {}
        for case in pending:
            for one in case.left:
                if one.kind == "regex" and PatternSet.fits(one.operand):
                    patterns.setdefault(one.chain, {})[one] = None
        lines: list[str] = []
        for chain, tests in patterns.items():
            if len(tests) < SET_FROM:
                continue
            value = self._load(chain, names, lines, pad)
            found = self._fresh("s")
            search = self._value(PatternSet([one.operand for one in tests]).search)
            lines.append(f"{pad}{found} = {search}({value}) if {value}.__class__ is str else ()")
            for number, one in enumerate(tests):
                word = "not in" if one.negated else "in"
                names.sets[one] = f"{self._value(number)} {word} {found}"
                names.numbers[one] = (found, number)
        return lines

    def _found_patterns(
        self, pending: list[_Pending], names: _Names, lines: list[str], pad: str
    ) -> list[_Pending]:
        """Decide the cases that wait only for one pattern of a set: few of its patterns match. Returns the others."""
        sets: dict[str, dict[int, list[int]]] = {}
        others = []
        for case in pending:
            (test,) = case.left if len(case.left) == 1 else (None,)
            if test is None or test.negated or test not in names.numbers:
                others.append(case)
                continue
            found, number = names.numbers[test]
            sets.setdefault(found, {}).setdefault(number, []).append(case.place)
        for found, places in sets.items():
            get = self._value({number: tuple(each) for number, each in places.items()}.get)
            lines.append(f"{pad}for n in {found}: r.extend({get}(n, ()))")
        return others

    def _thresholds(
        self, pending: list[_Pending], names: _Names, lines: list[str], pad: str
    ) -> list[_Pending]:
        """Decide the cases that wait only for `property > number`, by one search. Returns the others."""
        groups: dict[Chain, list[tuple[Decision, int]]] = {}
        for case in pending:
            (test,) = case.left if len(case.left) == 1 else (None,)
            if test is not None and test.kind == "number" and test.operand[0] == ">":
                groups.setdefault(test.chain, []).append((test, case.place))
        decided: set[int] = set()
        for chain, cases in groups.items():
            if len(cases) < SEARCH_FROM:
                continue
            decided.update(place for _, place in cases)
            cases.sort(key=lambda case: case[0].operand[1])
            numbers, places = [test.operand[1] for test, _ in cases], [place for _, place in cases]
            value = self._load(chain, names, lines, pad)
            below = f"{self._value(places)}[:bisect_left({self._value(numbers)}, {value})]"
            asked = self._value(_by_asking([(test, _when_needed(test.node), place) for test, place in cases]))
            lines += [
                f"{pad}if {value}.__class__ is int or {value}.__class__ is float: r.extend({below})",
                f"{pad}else: {asked}(g, r, {value})",
            ]
        return [case for case in pending if case.place not in decided]

    # --- values of properties

    def _load(self, chain: Chain, names: _Names, lines: list[str], pad: str) -> str:
        """The local name of a property's value; the statements that set it are added to ``lines``."""
        known = names.known.get(("value", chain))
        if known is not None:
            return known
        name = names.known["value", chain] = self._fresh("v")
        if len(chain) == 1:
            lines.append(f"{pad}{name} = g[{self._value(chain[0])}]")
        else:
            members = self._members(chain[:-1], names, lines, pad)
            lines.append(f"{pad}{name} = {members}.get({self._value(chain[-1])})")
        return name

    def _members(self, chain: Chain, names: _Names, lines: list[str], pad: str) -> str:
        """The local name of an object on the way to a property, an empty one where there is none."""
        known = names.known.get(("members", chain))
        if known is None:
            value = self._load(chain, names, lines, pad)
            known = names.known["members", chain] = self._fresh("m")
            lines.append(f"{pad}{known} = {value} if {value}.__class__ is dict else no_members")
        return known

    def _lowered(self, chain: Chain, names: _Names, lines: list[str], pad: str) -> str:
        known = names.known.get(("lower", chain))
        if known is None:
            value = self._load(chain, names, lines, pad)
            known = names.known["lower", chain] = self._fresh("l")
            lines.append(f"{pad}{known} = {value}.lower() if {_is_short(value)} else None")
        return known

    # --- conditions

    def _condition(self, test: Decision, names: _Names, lines: list[str], pad: str) -> str:
        """The text of a condition; what it needs first is added to ``lines``."""
        if test.kind == "plain":
            return f"{self._slow(test)}(g)"
        value = self._load(test.chain, names, lines, pad)
        no = "not " if test.negated else ""
        if test.kind == "set":
            return f"{value} is None" if test.negated else f"{value} is not None"
        is_common = f"{value}.__class__ is str"
        match test.kind:
            case "text":
                common = f"{value} {'!=' if test.negated else '=='} {self._value(test.operand)}"
            case "texts":
                common = f"{value} {no}in {self._value(test.operand)}"
            case "contains":
                lowered = self._lowered(test.chain, names, lines, pad)
                common = f"{self._value(test.operand)} {no}in {lowered}"
                is_common = f"{lowered} is not None"
            case "regex":
                if test in names.sets:
                    common = names.sets[test]
                else:
                    common = f"{no}({self._found(test.operand, value)})"
                    is_common = _is_short(value)
            case "number":
                relation, number = test.operand
                common = f"{value} {relation} {self._value(number)}"
                is_common = f"{value}.__class__ is int or {value}.__class__ is float"
        slow = f"{self._slow(test)}(g)"
        return f"({common} if {is_common} else {test.when_null} if {value} is None else {slow})"

    def _found(self, pattern: str, value: str) -> str:
        """Whether a pattern is found in a text; an empty text never matches."""
        matcher = compile_regex(pattern)
        search = f"{self._value(matcher.search)}({value})"
        literals = matcher.literals
        if literals is None:
            return f"{value} and {search}"
        held = " or ".join(f"{self._value(text)} in {value}" for text in literals.texts)
        return held if literals.exact else f"({held}) and {search}"

    def _slow(self, test: Decision) -> str:
        """The name of the condition's own compiled expression."""
        return self._value(_when_needed(test.node))


def _is_short(value: str) -> str:
    """Whether a value is a text that is searched for nothing; the condition's own expression is charged for others."""
    return f"{value}.__class__ is str and size({value}) < {LONG:d}"


def _when_needed(node: Expr) -> Callable[[Globals], Any]:
    """An expression that is compiled when it is first asked; most never are, because values are as expected."""
    compiled: Callable[[Globals], Any] | None = None

    def ask(globals_: Globals) -> Any:
        nonlocal compiled
        if compiled is None:
            compiled = free_of_charge(lambda: condition_function(node))
        return compiled(globals_)

    return ask


def _most_shared(pending: Sequence[_Pending]) -> Decision:
    """The decision that most cases wait for."""
    return Counter(one for case in pending for one in case.left).most_common(1)[0][0]


def _most_compared(pending: Sequence[_Pending]) -> Chain | None:
    """The property that most cases compare with a text, None when no two do."""
    counts: Counter[Chain] = Counter()
    for case in pending:
        counts.update({one.chain for one in case.left if one.kind == "text" and not one.negated})
    if not counts:
        return None
    chain, count = counts.most_common(1)[0]
    return chain if count > 1 else None


def _by_asking(
    cases: Sequence[tuple[Decision, Callable[[Globals], Any], int]],
) -> Callable[[Globals, list[int], Any], None]:
    """What a search does with a value that is no number: each case's own expression is asked."""

    def find(globals_: Globals, found: list[int], value: Any) -> None:
        for test, ask, place in cases:
            if test.when_null if value is None else ask(globals_):
                found.append(place)

    return find


def _by_comparison(table: dict[str, Any]) -> Callable[[Globals, list[int], Any], None]:
    """What a table does with a value that is no text: it may equal several texts, by the rules of `=`."""

    def find(globals_: Globals, found: list[int], value: Any) -> None:
        for text, (places, function) in table.items():
            if eq(value, text):
                found.extend(places)
                if function is not None:
                    function(globals_, found)

    return find
