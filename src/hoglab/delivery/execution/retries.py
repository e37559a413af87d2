"""Retries: when a failed request is sent again.

Destinations are away for hours now and then: by default a request is repeated for a day, with waits that double up
to half an hour and full jitter, so that simultaneous failures are not repeated at the same time. `POSTHOG` is the
policy of the upstream product (spec: hog-runtime 4.5).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from hoglab.delivery.execution.answers import Answer, Postponed
from hoglab.delivery.outbound import FetchFailure, FetchResponse, MailFailure
from hoglab.patterns import anchored

if TYPE_CHECKING:
    from hoglab.functions.configuration.delivery_policy import Retry

RETRIABLE = frozenset({408, 425, 429, 500, 502, 503, 504, *range(520, 530)})
"""Statuses that are over sooner or later: too early (RFC 8470), and those of proxies, which tell from 520 to 529 that
the server behind them was away, slow or overloaded, among the usual ones."""
ASKED_TO_WAIT = RETRIABLE - {408, 500, 502, 504}
"""Statuses with which a server may say how long to wait."""
MAX_DOUBLINGS = 60


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Decides the delay after a failed attempt. Times in seconds; ``random`` returns numbers from 0 up to 1."""

    max_attempts: int | None = 3
    step_s: float = 1.0
    jitter_s: float = 1.0
    max_backoff_s: float = 30.0
    max_retry_after_s: float = 300.0
    doubles: bool = False
    """Whether each wait is twice as long as the one before, instead of one step longer."""
    full_jitter: bool = False
    """Whether a wait is random between one step and twice the regular wait, instead of adding ``jitter_s``."""
    max_age_s: float | None = None
    """Age of a run in seconds, from when it was queued, after which no attempt begins."""
    random: Callable[[], float] = random.random

    def wanted_by(self, retry: Retry | None) -> RetryPolicy:
        """Return the policy of a function that has delivery options (spec: hog-runtime 11)."""
        if retry is None:
            return self
        step_s = self.step_s if retry.base_ms is None else retry.base_ms / 1000
        most_s = max(step_s, self.max_backoff_s) if retry.max_ms is None else retry.max_ms / 1000
        return replace(
            self,
            max_attempts=self.max_attempts if retry.attempts is None else retry.attempts,
            step_s=step_s,
            jitter_s=min(self.jitter_s, step_s),
            max_backoff_s=most_s,
            max_retry_after_s=max(self.max_retry_after_s, most_s),
            doubles=True,
            max_age_s=retry.max_age_s,
        )

    def delay_s(
        self, answer: Answer | Postponed, attempts: int, now: datetime, age_s: float = 0.0
    ) -> float | None:
        """Return the delay before the next attempt; None when there is none.

        ``attempts`` were made so far; ``age_s`` is the time since the run was queued.
        """
        if not retriable(answer) or (self.max_attempts is not None and attempts >= self.max_attempts):
            return None
        random = self.random()
        jitter_s = self.jitter_s * random
        steps = 2.0 ** min(attempts - 1, MAX_DOUBLINGS) if self.doubles else attempts
        if self.full_jitter:
            longest_s = max(self.step_s, min(2 * self.step_s * steps, self.max_backoff_s))
            delay_s = self.step_s + (longest_s - self.step_s) * random
        else:
            delay_s = min(self.step_s * steps + jitter_s, self.max_backoff_s)
        asked_s = _asked_s(answer, now)
        if asked_s is not None:
            delay_s = max(delay_s, min(asked_s + jitter_s, self.max_retry_after_s))
        if self.max_age_s is not None and age_s + delay_s > self.max_age_s:
            return None
        return delay_s


POSTHOG = RetryPolicy()
"""Three attempts within five seconds."""
LASTING = RetryPolicy(
    max_attempts=None,
    max_backoff_s=1800.0,
    max_retry_after_s=3600.0,
    doubles=True,
    full_jitter=True,
    max_age_s=86_400.0,
)
"""About a hundred attempts within a day."""

UPSTREAM = "posthog"
LONGEST_S = 7 * 86_400
"""Maximum duration in seconds for which a function may ask."""
_DURATION = anchored(r"([1-9][0-9]{0,4})([mhd])")
_UNITS_S = {"m": 60, "h": 3600, "d": 86_400}


def parse_policy(text: str) -> RetryPolicy:
    """Return the policy that a setting names: `UPSTREAM`, or a duration like ``24h``.

    Raises `ValueError`.
    """
    text = text.strip().lower()
    if text == UPSTREAM:
        return POSTHOG
    parts = _DURATION.fullmatch(text)
    age_s = int(parts[1]) * _UNITS_S[parts[2]] if parts is not None else 0
    if not 60 <= age_s <= LONGEST_S:
        raise ValueError(f"is neither '{UPSTREAM}' (three attempts) nor a time from 1m to 7d, like 24h")
    return replace(LASTING, max_age_s=float(age_s))


def retriable(answer: Answer | Postponed) -> bool:
    """Return whether a later attempt may succeed."""
    match answer:
        case FetchResponse():
            return answer.status in RETRIABLE
        case FetchFailure() | MailFailure():
            return answer.retriable
        case Postponed():
            return True
    return False


def _asked_s(answer: Answer | Postponed, now: datetime) -> float | None:
    """Return the delay that the program or ``Retry-After`` asks for, in seconds from now.

    The header holds a date or a number of seconds.
    """
    if isinstance(answer, Postponed):
        return answer.after_s
    if not isinstance(answer, FetchResponse) or answer.status not in ASKED_TO_WAIT:
        return None
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = (moment - now).total_seconds()
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def excused(status: int, codes: Sequence[int | str]) -> bool:
    """Return whether a status is among a function's ``non_failure_status_codes``: 404 or "4xx"."""
    family = f"{status // 100}xx"
    return any(
        code == status or (isinstance(code, str) and code.strip().lower() in (family, str(status)))
        for code in codes
        if not isinstance(code, bool)
    )
