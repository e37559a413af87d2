"""Token bucket: a rate with a burst."""

from __future__ import annotations

from typing import NamedTuple


class TokenBucket(NamedTuple):
    """Immutable token bucket: ``tokens`` at a moment; more come with time, up to ``size``.

    ``at`` and all other moments are seconds of one clock. Tokens may have fractions, and be owed.
    """

    tokens: float
    at: float
    per_s: float
    size: float

    def left(self, now: float) -> float:
        """Return tokens now. A clock that was set back takes none."""
        return min(self.size, self.tokens + max(0.0, now - self.at) * self.per_s)

    def filled(self, now: float) -> TokenBucket:
        """Return the bucket as it is now."""
        return self._replace(tokens=self.left(now), at=now)

    def without(self, tokens: float) -> TokenBucket:
        """Return the bucket after tokens were taken."""
        return self._replace(tokens=self.tokens - tokens)

    def wait_s(self, tokens: float) -> float:
        """Return the time after ``at`` until there are enough tokens, in seconds."""
        return max(0.0, (tokens - self.tokens) / self.per_s)
