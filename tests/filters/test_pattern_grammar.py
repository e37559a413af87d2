"""Patterns that backtrack: what may run, and that nothing which may run harms the server."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S

from hoglab.filters.evaluate import compile_predicate
from hoglab.filters.pattern_grammar import (
    MAX_DEPTH,
    MAX_GROUPS,
    MAX_LENGTH,
    MAX_STEPS,
    PatternRefusedError,
    check_grammar,
)
from hoglab.filters.searching import compile_search

TOO_LARGE = [
    "(?=x)((a)|(b)){1000000}",
    "(?=x)a{10000000}",
    "(?=x)a{99999}",
    "(?=x)(?:a{1000}){3}",
    "(?=x)(?:(?:(?:a{20}){20}){20})",
    "(?=x)a{2000,}",
    "(?=x)(?:ab){0,1000}",
    "(?!x)[ab]{1500}\\w{1500}",
    "(?=x)" + "a{999}" * 3,
    "(?=" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1),
    "(?=x)" + "(" * 400 + "a" + ")*" * 400,
    "(?=x)" + "(a)" * MAX_GROUPS,
    "(?=x)" + "a" * MAX_LENGTH,
]
"""Patterns of which the engine would make too much, or crash."""

UNKNOWN = [
    "(?=x)(?:abc){e<=3}",
    "(?=x)(?:abc){i<=1,d<=1}",
    "(?=x)a{,5}",
    "(?=x)(?R)",
    "(?=x)(a)(?1)",
    "(?=x)(?P<n>a)(?&n)",
    "(?=x)(?P<n>a)(?P>n)",
    "(?=x)\\L<words>",
    "(?=x)(?V1)[[a-z]--[aeiou]]",
    "(?V1:(?=x)a)",
    "(?b)(?=x)a",
    "(?e)(?=x)a",
    "(?=x)(?|(a)|(b))",
    "(?=x)(?#comment)",
    "(?=x)(a)?(?(1)b|c)",
    "(?=x)(*PRUNE)",
    "(?=x)\\X",
    "(?=x)\\R",
    "(?=x)\\K",
    "(?=x)\\G",
    "(?=x)\\g<1>",
    "(?=x)\\N{BULLET}",
    "(?=x)\\m",
    "(?=x)(?<q>a)\\k<q>",
    "(?x)(?=a) b",
    "(?r)(?=x)",
]
"""Constructs of the engine that the grammar does not name."""

KNOWN = {
    "^(?!.*test)[a-z0-9._%+-]{1,64}@(?:[a-z0-9-]{1,63}\\.){1,8}[a-z]{2,}$": "ann@mail.example.com",
    "(?i)^(?=.*\\d)(?=.*[A-Z]).{8,64}$": "Passw0rd!",
    "(?i:(?<!un)happy)": "so HAPPY",
    "(?P<q>['\"]).*?(?P=q)": "say 'x'",
    "(?=[[:alpha:]])\\p{Lu}\\pL": "Éa",
    "(?=[]a])[]a][^]]": "]b",
    "(?>a+)b": "aab",
    "(\\w)\\1{2}": "aaa",
    "(?=a)\\x61\\u0062": "ab",
    "(?-i:(?=a)a)": "a",
}
"""Patterns that may run, each with a text that it finds."""


@pytest.mark.parametrize("pattern", [*TOO_LARGE, *UNKNOWN])
def test_what_the_grammar_does_not_allow_is_refused(pattern: str) -> None:
    with pytest.raises(PatternRefusedError):
        check_grammar(pattern)


@pytest.mark.parametrize("pattern", TOO_LARGE)
@pytest.mark.parametrize("operator", ["regex", "not_regex"])
def test_a_refused_pattern_is_no_condition(pattern: str, operator: str) -> None:
    with pytest.raises(PatternRefusedError):
        compile_predicate(operator, pattern)


@pytest.mark.parametrize("pattern", KNOWN)
def test_what_the_grammar_allows_is_searched(pattern: str) -> None:
    assert compile_predicate("regex", pattern)(KNOWN[pattern])
    assert not compile_predicate("regex", pattern)("")


def test_the_limit_of_steps_is_exact() -> None:
    check_grammar("(?=x)" + f"a{{{MAX_STEPS - 3}}}")
    with pytest.raises(PatternRefusedError, match="2,000 steps"):
        check_grammar("(?=x)" + f"a{{{MAX_STEPS - 2}}}")


@pytest.mark.parametrize("error", [MemoryError, RecursionError])
def test_a_pattern_for_which_memory_is_short_is_refused(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def compile_nothing(*_arguments: object) -> None:
        raise error

    monkeypatch.setattr("hoglab.filters.backtracking.regex.compile", compile_nothing)
    with pytest.raises(PatternRefusedError, match="memory"):
        compile_search("(?=a)")


ATOMS = (
    "a",
    "b",
    ".",
    r"\w",
    r"\d",
    "[ab]",
    "[^a]",
    r"\1",
    r"\2",
    r"\b",
    "^",
    "$",
    "é",
    "[[:alpha:]]",
    r"\p{L}",
)
OPENINGS = ("(", "(", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:")
REPEATS = ("", "", "", "*", "+", "?", "*?", "++", "?+", "{2,9}", "{40}", "{300}", "{0,600}", "{3,}", "{1500}")


def random_pattern(chance: random.Random, depth: int) -> str:
    """Return a pattern of the grammar, which may be too large."""
    parts = []
    for _ in range(chance.randint(1, 3)):
        if depth and chance.random() < 0.5:
            branches = (random_pattern(chance, depth - 1) for _ in range(chance.randint(1, 3)))
            parts.append(f"{chance.choice(OPENINGS)}{'|'.join(branches)})")
        else:
            parts.append(chance.choice(ATOMS))
        parts.append(chance.choice(REPEATS))
    return "".join(parts)


SURVEY = """
import resource, sys
from hoglab.filters.searching import compile_search
from hoglab.filters.pattern_grammar import PatternRefusedError
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
searched = 0
for pattern in sys.stdin.read().split("\\n"):
    try:
        search = compile_search(pattern)
    except PatternRefusedError:
        continue
    if search is not None:
        searched += 1
        for text in ("a" * 10_000, "ab" * 5_000, "b" + "a" * 9_000 + "!"):
            search(text)
print(searched, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used)
"""


def test_no_pattern_of_the_grammar_takes_the_process_down(tmp_path: Path) -> None:
    """Searched in a process of its own: the engine's C code crashes, or takes all memory, where something is amiss."""
    chance = random.Random(7)
    patterns = [f"(?=a|b){random_pattern(chance, chance.randint(0, 5))}" for _ in range(150)]
    program = tmp_path / "survey.py"
    program.write_text(SURVEY)
    ended = subprocess.run(
        [sys.executable, str(program)],
        input="\n".join([*patterns, *TOO_LARGE, *UNKNOWN]),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2_000:]
    searched, kilobytes = map(int, ended.stdout.split())
    assert searched > 25
    assert kilobytes < 100_000
