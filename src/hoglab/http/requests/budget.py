"""The memory for bodies of requests: one budget for the whole server, with parts and shares of it.

Bytes are charged as they arrive and given back with the answer. A body from an unknown sender counts for strangers
together and for its address; one with a known key or token counts for its project or user. When there is no room,
the largest body that is still arriving gives way to smaller ones, so that a few endless uploads do not keep events
out; when there is none larger, the request itself is refused with 503.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import Counter, Gauge

from hoglab.http.errors import too_much_at_once
from hoglab.http.requests.client_ip import nearest_address
from hoglab.http.requests.deadlines import Deadlines

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from starlette.types import Scope

BUDGET_BYTES = 256 * 1024 * 1024
"""Bytes of all bodies that are being received or worked on."""
STRANGERS_PART = 0.5
"""Share for requests whose key or token is not known yet; events have their token in the body."""
ADDRESS_SHARE = 0.25
"""Share for all requests of one address whose key or token is not known yet."""
OWNER_SHARE = 0.5
"""Share for one project, or one user outside of projects."""
FREE_BYTES = 16 * 1024
"""A body up to this size is not charged: the number of connections bounds all of them together."""

_BUDGET_KEY = "hoglab.budget"
_LEASE_KEY = "hoglab.lease"
_OWNER_KEY = "hoglab.owner"

_HELD = Gauge("hoglab_http_bodies_bytes", "Bytes of request bodies that are being received or worked on.")
_REFUSED = Counter(
    "hoglab_http_bodies_refused", "Bodies refused because there was no memory for them.", ["limit"]
)


class Lease:
    """Share of the budget that one request holds."""

    __slots__ = ("_budget", "address", "gave_way", "held", "owner", "receiver")

    def __init__(self, budget: BodyBudget, address: str, owner: str | None) -> None:
        self._budget = budget
        self.address = address
        self.owner = owner
        self.held = 0
        self.receiver: asyncio.Task[Any] | None = None
        """The task that is reading the body, while it does."""
        self.gave_way = False
        """Whether another request got the memory: the wait for the rest of the body was ended."""

    def take(self, size: int) -> None:
        """Charge further bytes. Raises 503 when there is no room for them."""
        self._budget.admit(self, size)
        self._budget.move(self, size)

    def belongs_to(self, owner: str) -> None:
        """Charge the lease to an owner who has become known. Raises 503 when that is too much."""
        if owner == self.owner:
            return
        held = self.held
        self._budget.move(self, -held)
        self.owner = owner
        self.take(held)

    def release(self) -> None:
        """Give everything back."""
        if self.held:
            self._budget.move(self, -self.held)


class BodyBudget:
    """The budget of one server. For one event loop."""

    def __init__(self, total_bytes: int = BUDGET_BYTES) -> None:
        self._total_bytes = total_bytes
        self._strangers_bytes = int(total_bytes * STRANGERS_PART)
        self._address_bytes = int(total_bytes * ADDRESS_SHARE)
        self._owner_bytes = int(total_bytes * OWNER_SHARE)
        self.held = 0
        self._by_strangers = 0
        # Only of those who hold something: no longer than there are requests.
        self._by_address: dict[str, int] = {}
        self._by_owner: dict[str, int] = {}
        self._leases: set[Lease] = set()

    def watch(self, scope: Scope) -> None:
        """Charge the body of a request to the budget."""
        scope[_BUDGET_KEY] = self

    def admit(self, lease: Lease, size: int) -> None:
        """Make room for further bytes of a lease. Raises 503 when there is none."""
        while (limit := self._exceeded(lease, size)) is not None:
            largest = max(self._rivals(lease, limit), key=lambda rival: rival.held, default=None)
            _REFUSED.labels(limit).inc()
            if largest is None or largest.held <= lease.held + size:
                raise too_much_at_once()
            _give_way(largest)

    def _exceeded(self, lease: Lease, size: int) -> str | None:
        """Return the name of the limit that further bytes of a lease would exceed."""
        if lease.owner is None:
            if self._by_address.get(lease.address, 0) + size > self._address_bytes:
                return "address"
            if self._by_strangers + size > self._strangers_bytes:
                return "strangers"
        elif self._by_owner.get(lease.owner, 0) + size > self._owner_bytes:
            return "owner"
        return "total" if self.held + size > self._total_bytes else None

    def _rivals(self, lease: Lease, limit: str) -> Iterator[Lease]:
        """Yield the bodies that are still arriving, and that count for the same limit."""
        for other in self._leases:
            if other is lease or other.receiver is None:
                continue
            same = (
                limit == "total"
                or (limit == "strangers" and other.owner is None)
                or (limit == "address" and other.owner is None and other.address == lease.address)
                or (limit == "owner" and other.owner == lease.owner)
            )
            if same:
                yield other

    def move(self, lease: Lease, size: int) -> None:
        """Book bytes of a lease, given back when they are negative."""
        lease.held += size
        self.held += size
        if lease.owner is None:
            self._by_strangers += size
            _book(self._by_address, lease.address, size)
        else:
            _book(self._by_owner, lease.owner, size)
        if lease.held:
            self._leases.add(lease)
        else:
            self._leases.discard(lease)
        _HELD.inc(size)


def _give_way(lease: Lease) -> None:
    receiver, lease.receiver = lease.receiver, None
    lease.gave_way = True
    lease.release()
    if receiver is not None:
        Deadlines.here().expire(receiver)


def _book(accounts: dict[str, int], name: str, size: int) -> None:
    held = accounts.get(name, 0) + size
    if held:
        accounts[name] = held
    else:
        accounts.pop(name, None)


def lease_of(scope: Scope) -> Lease | None:
    """Return the lease of a request, made with the first question; None where nobody keeps a budget."""
    lease: Lease | None = scope.get(_LEASE_KEY)
    if lease is None:
        budget: BodyBudget | None = scope.get(_BUDGET_KEY)
        if budget is not None:
            lease = scope[_LEASE_KEY] = Lease(budget, nearest_address(scope), scope.get(_OWNER_KEY))
    return lease


def charge(scope: Scope, size: int) -> None:
    """Charge what a request needs beside its body as it came. Raises 503 when there is no room for it."""
    if size > FREE_BYTES and (lease := lease_of(scope)) is not None:
        lease.take(size)


def known_owner(scope: Scope, owner: str) -> None:
    """Charge a request to an owner who has become known: ``project:1``, ``user:7``. Raises 503."""
    scope[_OWNER_KEY] = owner
    lease: Lease | None = scope.get(_LEASE_KEY)
    if lease is not None:
        lease.belongs_to(owner)


def owner_of(scope: Scope) -> str | None:
    """Return the owner of a request, as far as one has become known."""
    owner: str | None = scope.get(_OWNER_KEY)
    return owner


def release(scope: Scope) -> None:
    """Give back the memory of an answered request."""
    lease: Lease | None = scope.pop(_LEASE_KEY, None)
    if lease is not None:
        lease.release()
