"""Token buckets: a rate with a burst."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hoglab.fairness.token_bucket import TokenBucket

NUMBERS = st.floats(0.001, 1_000)


def test_tokens_come_back_with_time_up_to_the_size() -> None:
    bucket = TokenBucket(tokens=2.0, at=10.0, per_s=0.5, size=4.0)
    assert [bucket.left(now) for now in (10, 12, 14, 1_000)] == [2.0, 3.0, 4.0, 4.0]
    assert bucket.left(5) == 2.0, "a clock that was set back takes none"
    assert bucket.filled(12).without(5).left(12) == -2.0
    assert bucket.wait_s(3.0) == 2.0
    assert bucket.wait_s(1.0) == 0.0


@given(NUMBERS, NUMBERS, st.lists(st.tuples(NUMBERS, st.booleans()), max_size=20))
def test_nobody_gets_more_than_the_burst_and_the_rate(
    per_s: float, size: float, steps: list[tuple[float, bool]]
) -> None:
    bucket, now, taken = TokenBucket(size, 0.0, per_s, size), 0.0, 0.0
    for passed_s, takes in steps:
        now += passed_s
        bucket = bucket.filled(now)
        assert bucket.tokens <= size
        if takes and bucket.tokens > 0:
            taken += bucket.tokens
            bucket = bucket.without(bucket.tokens)
    assert taken <= (size + now * per_s) * 1.000_001
