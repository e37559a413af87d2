"""What texts of hog functions may use (spec: hog-runtime 4.1, 4.2)."""

from __future__ import annotations

from hoglab.functions.environments import DELIVERING, DESTINATION_LIMITS, MASKING_HASHES, MASKING_LIMITS


def test_limits_are_the_specified_ones() -> None:
    limits = DESTINATION_LIMITS
    assert (limits.time_s, limits.async_steps, limits.print_lines) == (1.0, 5, 24)
    assert MASKING_LIMITS.time_s == 0.05
    assert (DELIVERING.limits, MASKING_HASHES.limits) == (DESTINATION_LIMITS, MASKING_LIMITS)
