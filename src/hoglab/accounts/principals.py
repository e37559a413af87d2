"""Memory, for some seconds, of the principals of secrets: nearly every request has a secret that was just seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hoglab.accounts.keys import hash_key
from hoglab.http.identity import UNKNOWN, Principal, Unknown

if TYPE_CHECKING:
    from datetime import datetime

RECHECK_S = 5.0
"""Time in seconds for which a secret is trusted from memory: the maximum delay of a revocation by another process."""
REMEMBERED = 10_000
"""Maximum number of secrets in memory."""


class PrincipalCache:
    """Principals by the hash of the secret that they were known by.

    ``read`` finds the principal of a hash in the database; None when there is none. ``now`` is the wall clock,
    ``clock`` gives seconds that never go back.
    """

    def __init__(
        self,
        read: Callable[[str], Principal | None],
        now: Callable[[], datetime],
        clock: Callable[[], float],
    ) -> None:
        self._read = read
        self._now = now
        self._clock = clock
        self._known: dict[str, tuple[Principal, float]] = {}
        self._generation = 0
        """Grows with each change, so that a slow reader does not bring back old data."""

    def recall(self, secret: str) -> Principal | Unknown:
        """Return the principal of a secret seen within `RECHECK_S`, from memory alone."""
        known = self._known.get(hash_key(secret))
        if known is None or self._clock() - known[1] > RECHECK_S:
            return UNKNOWN
        principal = known[0]
        if principal.expires_at is not None and principal.expires_at <= self._now():
            return UNKNOWN
        return principal

    def authenticate(self, secret: str) -> Principal | None:
        """Return the principal of a secret, from memory or the database."""
        known = self.recall(secret)
        if not isinstance(known, Unknown):
            return known
        secure_value = hash_key(secret)
        generation, checked_at = self._generation, self._clock()
        principal = self._read(secure_value)
        if principal is None:
            self._known.pop(secure_value, None)
            return None
        if len(self._known) >= REMEMBERED:
            self._known = {}
        if generation == self._generation:
            self._known[secure_value] = (principal, checked_at)
        return principal

    def forget(self) -> None:
        """Drop every remembered principal, so that the database is read again."""
        self._generation += 1
        self._known = {}
