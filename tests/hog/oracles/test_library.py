"""Every library function with generated arguments: the official machine, our Python, interpreter and JavaScript.

`HOGLAB_FUZZ_EXAMPLES` is the number of calls of each function, `HOGLAB_FUZZ_SEED` chooses others. Differences that
are meant are in `library_differences.toml`.
"""

import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.hog.oracles.library_calls import FUNCTIONS, library_calls
from tests.hog.oracles.runners import Outcome, Runners

from hoglab.hog.stdlib import LIBRARY, Function

CALLS = int(os.environ.get("HOGLAB_FUZZ_EXAMPLES", "40"))
INTERPRETED_CALLS = max(1, CALLS // 2)
JAVASCRIPT_CALLS = max(1, CALLS // 4)  # each carries the code of the functions it uses, which takes longer

SEED = int(os.environ.get("HOGLAB_FUZZ_SEED", "0"))


@dataclass(frozen=True)
class Difference:
    """A listed difference between the answers of two runners: which calls it covers (those of `functions`, of all
    when there are none, whose text and answers match the patterns), why, and calls with both answers."""

    runners: tuple[str, str]
    title: str
    reason: str
    functions: frozenset[str]
    call: str
    answers: tuple[str, str]
    examples: tuple[tuple[str, str, str], ...]

    def covers(self, name: str, source: str, answers: tuple[str, str]) -> bool:
        texts = zip((self.call, *self.answers), (source, *answers), strict=True)
        return name in (self.functions or LIBRARY) and all(
            re.search(pattern, text, re.DOTALL) for pattern, text in texts
        )


def read_differences(table: str, keys: tuple[str, str], runners: tuple[str, str]) -> list[Difference]:
    tables = tomllib.loads(Path(__file__).with_name("library_differences.toml").read_text(encoding="utf-8"))
    return [
        Difference(
            runners,
            entry["title"],
            entry["reason"],
            frozenset(entry["functions"]),
            entry.get("call", ""),
            (entry.get(keys[0], ""), entry.get(keys[1], "")),
            tuple(tuple(example) for example in entry["examples"]),
        )
        for entry in tables[table]
    ]


DIFFERENCES = read_differences("library", ("official", "ours"), ("official", "python"))
IN_JAVASCRIPT = read_differences("javascript", ("python", "javascript"), ("python", "javascript"))


def shown(outcome: Outcome) -> str:
    """What a program printed, the brackets around its last line removed, or how it ended."""
    error = outcome.error
    if error is None:
        *lines, last = outcome.printed
        return "\n".join([*lines, last.removeprefix("[").removesuffix("]")])
    return f"throws {error.thrown}" if error.kind == "throw" else f"fails: {error.text}"


def agree(left: str, right: str) -> bool:
    """Whether both did the same; the words of failures are free (spec: hog-language 9, D13)."""
    return left == right or (left.startswith("fails") and right.startswith("fails"))


def surprises(
    declared: Function, sources: list[str], names: tuple[str, str], listed: list[Difference], runners: Runners
) -> str:
    """The calls to which two runners give different answers, none of them listed."""
    found = []
    for source in sources:
        left, right = (shown(runners.run(name, source)) for name in names)
        if not agree(left, right) and not any(
            difference.covers(declared.name, source, (left, right)) for difference in listed
        ):
            found.append(f"{source}\n  {names[0]}: {left}\n  {names[1]}: {right}")
    return "\n".join(found).encode(errors="backslashreplace").decode()


@pytest.mark.parametrize("declared", FUNCTIONS, ids=lambda f: f.name)
def test_calls_agree_with_the_official_machine(declared: Function, runners: Runners) -> None:
    sources = library_calls(declared, CALLS, SEED)
    assert surprises(declared, sources, ("official", "python"), DIFFERENCES, runners) == ""


@pytest.mark.parametrize("declared", FUNCTIONS, ids=lambda f: f.name)
def test_the_interpreter_agrees_with_the_compiled_code(declared: Function, runners: Runners) -> None:
    sources = library_calls(declared, INTERPRETED_CALLS, SEED)
    assert surprises(declared, sources, ("interpreter", "python"), [], runners) == ""


@pytest.mark.parametrize("declared", FUNCTIONS, ids=lambda f: f.name)
def test_javascript_agrees_with_the_compiled_code(declared: Function, runners: Runners) -> None:
    sources = library_calls(declared, JAVASCRIPT_CALLS, SEED)
    assert surprises(declared, sources, ("python", "javascript"), IN_JAVASCRIPT, runners) == ""


@pytest.mark.parametrize("listed", DIFFERENCES + IN_JAVASCRIPT, ids=lambda listed: listed.title)
def test_listed_differences_are_still_there(listed: Difference, runners: Runners) -> None:
    assert listed.functions <= set(LIBRARY)
    assert listed.examples
    assert listed.reason.endswith(".")
    for call, *answers in listed.examples:
        source = f"print([{call}])"
        left, right = (shown(runners.run(name, source)) for name in listed.runners)
        assert not agree(left, right), f"{call} gives {right} everywhere: remove it from the list"
        assert ["fails" if text.startswith("fails") else text for text in (left, right)] == answers
        assert any(listed.covers(name, source, (left, right)) for name in listed.functions or LIBRARY)


@pytest.mark.parametrize("declared", FUNCTIONS, ids=lambda f: f.name)
def test_numbers_of_arguments_are_refused_in_the_same_words(declared: Function, runners: Runners) -> None:
    wrong = [declared.min_args - 1] if declared.min_args else []
    if declared.max_args is not None:
        wrong.append(declared.max_args + 1)
    for count in wrong if declared.name != "max2" else ():
        arguments = ", ".join(["null"] * count)
        call = f"{declared.name}({arguments})"
        source = call if declared.exact else f"let f := `{declared.name}` return f({arguments})"
        official, ours = (runners.run(name, source).error for name in ("official", "python"))
        assert official is not None
        assert ours is not None
        assert ours.text == official.text, source
