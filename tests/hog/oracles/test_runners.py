"""The runners themselves: that they tell apart what they must."""

from __future__ import annotations

import pytest
from tests.hog.oracles.runners import RUNNERS, Failure, Outcome, Runners

every_runner = pytest.mark.parametrize("name", RUNNERS)


@every_runner
def test_a_result_and_printed_lines(runners: Runners, name: str) -> None:
    source = "print('a', 1.0, null, (1,)); print('%s', 2) return [user.id, 'x', {'k': (1, 2)}]"
    outcome = runners.run(name, source, {"user": {"id": 7}})
    assert outcome == Outcome("[7, 'x', {'k': (1, 2)}]", ("a 1 null tuple(1)", "%s 2"), (), None)


@every_runner
def test_thrown_errors_are_compared_with_type_message_and_payload(runners: Runners, name: str) -> None:
    outcome = runners.run(name, "print(1) throw HogError('Mine', 'it\\'s', {'a': [1]})")
    assert outcome == Outcome(None, ("1",), (), Failure("throw", r"Mine('it\'s', {'a': [1]})", ""))
    assert runners.run(name, "throw Error('a')") != runners.run(name, "throw Error('b')")


@every_runner
def test_failures_are_told_from_throws_and_limits(runners: Runners, name: str) -> None:
    failed = runners.run(name, "return jsonParse('{')").error
    endless = runners.run(name, "fun f(x) { return f(x + 1) } return f(1)").error
    assert failed is not None
    assert endless is not None
    assert (failed.kind, endless.kind) == ("failure", "limit")


@pytest.mark.parametrize("name", [name for name in RUNNERS if name != "javascript"])
def test_host_calls_and_their_answers(runners: Runners, name: str) -> None:
    source = "let n := 2 let r := fetch('u', {'a': n}) print(n) return r.status + fetch('v').status"
    outcome = runners.run(name, source, answers=[{"status": 200}, {"status": 4}])
    assert outcome == Outcome("204", ("2",), (("fetch", '["u", {"a": 2}]'), ("fetch", '["v"]')), None)


def test_a_global_that_is_missing_is_a_failure_everywhere(runners: Runners) -> None:
    outcomes = runners.run_all("return nothing.here")
    assert {outcome.error.kind for outcome in outcomes.values() if outcome.error} == {"failure"}
