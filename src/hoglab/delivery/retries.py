"""When a failed request is sent again (spec: hog-runtime 4.5)."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from hoglab.delivery.fetch import FetchFailure, FetchResponse

RETRIABLE = frozenset({408, 429, 500, 502, 503, 504})
ASKED_TO_WAIT = frozenset({429, 503})
"""Statuses with which the other side may say how long to wait."""

Answer = FetchResponse | FetchFailure


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Decides what follows a failed attempt. Times in seconds; ``random`` gives numbers from 0 up to 1."""

    max_attempts: int = 3
    step_s: float = 1.0
    jitter_s: float = 1.0
    max_backoff_s: float = 30.0
    max_retry_after_s: float = 300.0
    random: Callable[[], float] = random.random

    def delay_s(self, answer: Answer, attempts: int, now: datetime) -> float | None:
        """How long to wait before the next attempt, None when there is to be none. ``attempts``: made so far."""
        if attempts >= self.max_attempts or not _retriable(answer):
            return None
        jitter_s = self.jitter_s * self.random()
        delay_s = min(self.step_s * attempts + jitter_s, self.max_backoff_s)
        asked_s = _asked_s(answer, now)
        if asked_s is not None:
            delay_s = max(delay_s, min(asked_s + jitter_s, self.max_retry_after_s))
        return delay_s


def is_failure(answer: Answer) -> bool:
    return isinstance(answer, FetchFailure) or answer.status >= 400


def _retriable(answer: Answer) -> bool:
    return answer.retriable if isinstance(answer, FetchFailure) else answer.status in RETRIABLE


def _asked_s(answer: Answer, now: datetime) -> float | None:
    """What ``Retry-After`` says, as seconds from now; a date or a number of seconds."""
    if isinstance(answer, FetchFailure) or answer.status not in ASKED_TO_WAIT:
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
    """Whether a status is among a function's ``non_failure_status_codes``: 404, "4xx", …"""
    family = f"{status // 100}xx"
    return any(
        code == status or (isinstance(code, str) and code.strip().lower() in (family, str(status)))
        for code in codes
        if not isinstance(code, bool)
    )
