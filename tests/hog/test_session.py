"""Sessions: pieces of a program, one after the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.hog.oracles.programs import oracle_settings, programs

from hoglab import hog
from hoglab.hog.parser import parse_program
from hoglab.hog.rt.printing import repr_value
from hoglab.hog.session import is_complete


def shown(session: hog.Session, source: str) -> str:
    result = session.run(source).result
    return repr_value(result.value) if result.error is None else str(result.error)


def test_variables_and_functions_stay() -> None:
    session = hog.Session({"event": {"n": 5}})
    assert shown(session, "let a := event.n") == "null"
    assert shown(session, "a + 1") == "6"
    assert shown(session, "fun add(x) { a := a + x; return a }") == "null"
    assert [shown(session, "add(2)"), shown(session, "a")] == ["7", "7"]
    assert shown(session, "a := 'text' a") == "'text'"
    assert shown(session, "let a := 1") == "null"
    assert shown(session, "a") == "1"
    assert shown(session, "add(2)") == "NaN", "the function keeps the variable that it was made with"
    assert set(session.variables) == {"a", "add"}


def test_errors_leave_the_session_usable() -> None:
    session = hog.Session()
    session.run("let a := 1 fun f(x) { throw Error('no') }")
    assert shown(session, "let b := f(1)") == "Error('no')", "the place is in another piece"
    assert shown(session, "let c := 1 throw Error('here')") == "Error('here') (line 1, column 12)"
    with pytest.raises(hog.HogCompileError):
        session.run("d := 1")
    with pytest.raises(hog.HogSyntaxError):
        session.run("let d = 1")
    assert shown(session, "fun endless(x) { return endless(x) } endless(1)").startswith("Call stack exceeded")
    assert shown(session, "a") == "1"
    assert shown(
        session, "sleep(1)"
    ) == "Unknown async function 'sleep' (line 1, column 1)" or "sleep" in shown(session, "sleep(1)")
    assert [one.code for one in session.run("nope()").diagnostics] == ["unknown-function"]


@oracle_settings(40, shrink=False)
@given(programs(max_statements=5))
def test_pieces_do_what_the_whole_does(source: str) -> None:
    """A program entered statement by statement prints and returns what it does as one."""
    variables = {"event": {"properties": {}}}
    whole = hog.run(source, variables)
    session = hog.Session(variables)
    tree = parse_program(source)
    starts = [statement.start for statement in tree.declarations]
    if any(source[start - 1 : start] == "(" for start in starts):
        return  # a statement's place leaves out the bracket that it begins with
    printed: list[str] = []
    last = None
    for start, end in zip(starts, [*starts[1:], len(source)], strict=True):
        result = session.run(source[start:end]).result
        printed += result.printed
        last = result
        if result.error is not None:
            break
    assert last is not None
    assert tuple(printed) == whole.printed
    assert repr_value(last.value) == repr_value(whole.value)
    assert (last.error and last.error.message) == (whole.error and whole.error.message)


@pytest.mark.parametrize(
    ("source", "complete"),
    [
        ("1 + 1", True),
        ("let a := 1", True),
        ("let a = 1", True),
        ("fun f() {", False),
        ("[1,", False),
        ("f(1", False),
        ("'open", False),
        ("f'open {", False),
        ("/* open", False),
        ("1 +", False),
        (")", True),
        ("", True),
    ],
)
def test_what_goes_on_in_the_next_line(source: str, complete: bool) -> None:
    assert is_complete(source) is complete
