"""Sending of requests and e-mails: the senders that runs of functions share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hoglab.delivery.outbound.fetch import Fetcher

if TYPE_CHECKING:
    from hoglab.delivery.outbound.addresses import AddressGuard
    from hoglab.delivery.outbound.fetch import FetchLimits
    from hoglab.delivery.outbound.mail import Mailer


@dataclass(frozen=True, slots=True)
class Outbound:
    """Senders of requests and e-mails, bound to no event loop."""

    guard: AddressGuard
    fetch_limits: FetchLimits
    mailer: Mailer

    def fetcher(self) -> Fetcher:
        """Return a sender of requests for one event loop; close it."""
        return Fetcher(self.guard, self.fetch_limits)
