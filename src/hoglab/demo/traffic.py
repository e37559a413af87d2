"""Simulated users, sent through the unmodified PostHog Python SDK."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from posthog import Posthog

from hoglab.demo.scenario import FLAG_KEY, PURCHASE, SimulatedUser, Truth

FLUSH_TIMEOUT_S = 120.0


@dataclass(slots=True)
class Sent:
    """What the simulation did, as the SDK saw it."""

    variants: Counter[str] = field(default_factory=Counter)
    purchases: dict[str, str] = field(default_factory=dict)  # event uuid -> variant
    revenue: dict[str, float] = field(default_factory=dict)  # by variant
    without_variant: int = 0


def send_users(
    users: Iterable[SimulatedUser],
    truth: Truth,
    *,
    url: str,
    project_token: str,
    threads: int,
    on_user: Callable[[], None],
) -> Sent:
    """Let every user ask for the flag, see a variant and perhaps buy; returns when all events are sent."""
    client = Posthog(
        project_token,
        host=url,
        gzip=True,
        thread=2,
        max_queue_size=200_000,  # the SDK drops events above it: the demo must not lose any on its own side
        feature_flags_request_timeout_seconds=10,
    )
    sent = Sent()
    lock = threading.Lock()
    errors: list[BaseException] = []
    source = iter(users)

    def work() -> None:
        try:
            for user in _taking_turns(source, lock):
                _visit(client, user, truth, sent, lock)
                on_user()
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, name=f"demo-users-{n}", daemon=True) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    client.flush(timeout_seconds=FLUSH_TIMEOUT_S)
    client.shutdown()
    if errors:
        raise errors[0]
    return sent


def _taking_turns(source: Iterator[SimulatedUser], lock: threading.Lock) -> Iterator[SimulatedUser]:
    while True:
        with lock:
            user = next(source, None)
        if user is None:
            return
        yield user


def _visit(client: Posthog, user: SimulatedUser, truth: Truth, sent: Sent, lock: threading.Lock) -> None:
    flags = client.evaluate_flags(user.distinct_id, person_properties=user.person_properties)
    variant = flags.get_flag(FLAG_KEY)  # reading the flag sends the exposure
    if not isinstance(variant, str):
        with lock:
            sent.without_variant += 1
        return
    purchase = user.purchase(variant, truth)
    uuid = None
    if purchase is not None:
        uuid = client.capture(
            PURCHASE,
            distinct_id=user.distinct_id,
            properties={"amount": purchase.amount, "currency": "EUR", "$set": user.person_properties},
            flags=flags,
        )
    with lock:
        sent.variants[variant] += 1
        if purchase is not None and uuid is not None:
            sent.purchases[str(uuid)] = variant
            sent.revenue[variant] = sent.revenue.get(variant, 0.0) + purchase.amount
