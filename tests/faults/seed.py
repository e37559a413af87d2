"""The seed of all random moments and places of the fault tests."""

from __future__ import annotations

import os
import random

_WANTED = os.environ.get("HOGLAB_TEST_SEED", "1")

SEED = random.SystemRandom().randrange(2**32) if _WANTED == "random" else int(_WANTED)
"""The same in every run of the suite, so that a failure is of the change at hand; the long runs draw a new one."""
