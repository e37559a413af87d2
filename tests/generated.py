"""How many examples tests generate, and from which seed.

`make test` tries few examples, the same in every run, so that a failure is of the change at hand. With
``HOGLAB_TEST_EXAMPLES=all``, as in the full check, all of them are tried, from the seed ``HOGLAB_TEST_SEED``: a number,
``random``, or by default that of the day. The header of the run names the seed; setting it repeats the run.
"""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime

from hypothesis import HealthCheck, settings

ALL = os.environ.get("HOGLAB_TEST_EXAMPLES") == "all"
"""Whether tests try all of their examples."""
FEWEST = 10
"""Number of examples that a test tries at least, if it has as many."""


def _seed() -> int:
    """Return the seed that the environment asks for."""
    wanted = os.environ.get("HOGLAB_TEST_SEED") or (datetime.now(UTC).strftime("%Y%m%d") if ALL else "1")
    return random.SystemRandom().randrange(2**32) if wanted == "random" else int(wanted)


SEED = _seed()
"""The seed of generated examples, and of random moments and places in tests of faults."""


def examples(count: int) -> int:
    """Return how many of a test's ``count`` examples this run tries: all, or a quarter of them."""
    return count if ALL else min(count, max(FEWEST, count // 4))


def use_profile() -> None:
    """Make Hypothesis generate as this module says, wherever a test does not say otherwise."""
    settings.register_profile(
        "hoglab",
        max_examples=examples(100),
        derandomize=not ALL,
        database=None,
        deadline=None,  # a busy machine would break it
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("hoglab")
