"""Simulated users, sent through the unmodified PostHog Python SDK."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from posthog import Posthog

from hoglab.demo.scenario import FLAG_KEY, PURCHASE, PURCHASE_AFTER, Purchase, SimulatedUser, Truth

FLUSH_TIMEOUT_S = 120.0
EXPOSURE = "$feature_flag_called"
"""Name of the event that the SDK sends when a flag is read."""


@dataclass(slots=True)
class SentTraffic:
    """Traffic of the simulation, as the SDK saw it."""

    variants: Counter[str] = field(default_factory=Counter)
    purchases: dict[str, str] = field(default_factory=dict)  # event uuid -> variant


@dataclass(frozen=True, slots=True)
class _Buyer:
    user: SimulatedUser
    variant: str
    purchase: Purchase
    visited: datetime
    flags: Any  # what the SDK evaluated, so that the purchase carries the flag values


def send_users(
    users: Iterable[SimulatedUser],
    truth: Truth,
    *,
    url: str,
    project_token: str,
    between: tuple[datetime, datetime],
    threads: int,
    on_user: Callable[[], None],
) -> SentTraffic:
    """Let every user ask for the flag and see a variant between two times, then let the buyers buy.

    Returns when the server has acknowledged all events.
    """
    start, end = between
    visits: dict[str, datetime] = {}

    def dated(event: dict[str, Any]) -> dict[str, Any]:
        """Give an exposure, which the SDK sends by itself, the time of the user's visit."""
        if event["event"] == EXPOSURE:
            event["timestamp"] = visits[event["distinct_id"]].isoformat()
        return event

    client = Posthog(
        project_token,
        host=url,
        gzip=True,
        thread=2,
        max_queue_size=200_000,  # the SDK drops events above it: the demo must not lose any on its own side
        feature_flags_request_timeout_seconds=10,
        before_send=dated,
    )
    sent = SentTraffic()
    buyers: list[_Buyer] = []
    lock = threading.Lock()

    def visit(user: SimulatedUser) -> None:
        visits[user.distinct_id] = visited = user.visited(start, end - PURCHASE_AFTER)
        flags = client.evaluate_flags(user.distinct_id, person_properties=user.person_properties)
        variant = flags.get_flag(FLAG_KEY)  # reading the flag sends the exposure
        if isinstance(variant, str):
            purchase = user.purchase(variant, truth)
            with lock:
                sent.variants[variant] += 1
                if purchase is not None:
                    buyers.append(_Buyer(user, variant, purchase, visited, flags))
        on_user()

    _in_parallel(users, visit, threads)
    client.flush(timeout_seconds=FLUSH_TIMEOUT_S)
    for buyer in buyers:
        uuid = client.capture(
            PURCHASE,
            distinct_id=buyer.user.distinct_id,
            timestamp=buyer.visited + PURCHASE_AFTER,
            properties={
                "amount": buyer.purchase.amount,
                "currency": "EUR",
                "$set": buyer.user.person_properties,
            },
            flags=buyer.flags,
        )
        sent.purchases[str(uuid)] = buyer.variant
    client.flush(timeout_seconds=FLUSH_TIMEOUT_S)
    client.shutdown()
    return sent


def _in_parallel(users: Iterable[SimulatedUser], work: Callable[[SimulatedUser], None], threads: int) -> None:
    """Do something for every user, in several threads. Raises the first error."""
    source, lock = iter(users), threading.Lock()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            for user in _taking_turns(source, lock):
                work(user)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=run, name=f"demo-users-{n}", daemon=True) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]


def _taking_turns(source: Iterator[SimulatedUser], lock: threading.Lock) -> Iterator[SimulatedUser]:
    while True:
        with lock:
            user = next(source, None)
        if user is None:
            return
        yield user
