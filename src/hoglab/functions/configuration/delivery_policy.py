"""Delivery policy of a function: ``x_delivery``, an extension of ours (spec: hog-runtime 11).

Without it a function is delivered as `HOGLAB_DELIVERY_RETRIES` says, in no order, one event a run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from hoglab.functions.environments import MASKING_HASHES, template_environment
from hoglab.functions.errors import InvalidFunctionError
from hoglab.functions.templating import TemplateDialect, TemplateError, compile_value
from hoglab.hog import Program, compile_template, evaluate
from hoglab.hog.values import is_truthy, to_string
from hoglab.http.fields.fields import Int, Number, Text, WireModel
from hoglab.http.fields.notes import Note, Notes

DELIVERED_TYPES = frozenset({"destination", "internal_destination"})
"""The types that may have delivery options."""

MAX_ATTEMPTS = 50
MAX_BACKOFF_MS = 24 * 3600 * 1000
MAX_AGE_S = 7 * 24 * 3600
MAX_PER_S = 10_000
MAX_ORDER_KEY_CHARS = 400
"""Maximum length of an order key; longer ones are told apart by their digests."""
MAX_BATCH_EVENTS = 1_000
MAX_BATCH_WAIT_MS = 60_000

_NOTES: Notes = {
    "retry": Note("Retries of failed requests; null for the default.", {"attempts": 10}),
    "attempts": Note("Maximum number of attempts of a request.", 10),
    "base_ms": Note("Approximate delay after the first attempt; doubles with each further one.", 1000),
    "max_ms": Note("The longest wait between two attempts.", 600_000),
    "max_age_s": Note("Maximum age of a run, from when it was enqueued, at which it is retried.", 86_400),
    "order_key": Note(
        "Runs for which this template gives the same text are done one after the other, in the order of their "
        "events. Empty text: in no order.",
        "{person.id}",
    ),
    "rate_limit": Note("Rate limit of the function; null for none.", {"per_s": 10}),
    "per_s": Note("Runs, and so requests, a second.", 10),
    "batch": Note(
        "Run once for many events; null for one at a time.", {"max_events": 100, "max_wait_ms": 1000}
    ),
    "max_events": Note("Maximum number of events.", 100),
    "max_wait_ms": Note("Maximum time that an event waits for others.", 1000),
}


class RetryBody(WireModel):
    """Retries of failed requests."""

    notes = _NOTES
    closed = True

    attempts: Annotated[int, Int(1, MAX_ATTEMPTS)] | None = None
    base_ms: Annotated[int, Int(10, MAX_BACKOFF_MS)] | None = None
    max_ms: Annotated[int, Int(10, MAX_BACKOFF_MS)] | None = None
    max_age_s: Annotated[int, Int(1, MAX_AGE_S)] | None = None


class RateLimitBody(WireModel):
    """Rate limit of a function."""

    notes = _NOTES
    closed = True

    per_s: Annotated[float, Number(0.001, MAX_PER_S)]


class BatchBody(WireModel):
    """Batching of events."""

    notes = _NOTES
    closed = True

    max_events: Annotated[int, Int(2, MAX_BATCH_EVENTS)]
    max_wait_ms: Annotated[int, Int(10, MAX_BATCH_WAIT_MS)] = 1000


class DeliveryBody(WireModel):
    """Delivery options of a function."""

    notes = _NOTES
    closed = True

    retry: RetryBody | None = None
    order_key: Annotated[str, Text(max_length=2_000, trim=False)] | None = None
    rate_limit: RateLimitBody | None = None
    batch: BatchBody | None = None


def checked_delivery(sent: DeliveryBody | None, kind: str | None) -> Mapping[str, Any] | None:
    """Return the delivery options to store: the fields that were set; None when none was.

    Raises `InvalidFunctionError`.
    """
    stored = {} if sent is None else sent.model_dump(exclude_unset=True, exclude_none=True)
    if not stored:
        return None
    if (kind or "destination") not in DELIVERED_TYPES:
        raise InvalidFunctionError("Delivery options are only allowed for destinations.", "x_delivery")
    retry = stored.get("retry", {})
    if "base_ms" in retry and "max_ms" in retry and retry["max_ms"] < retry["base_ms"]:
        raise InvalidFunctionError(
            "'max_ms' must not be less than 'base_ms'.", "x_delivery", "retry", "max_ms"
        )
    if "order_key" in stored:
        if "batch" in stored:
            raise InvalidFunctionError(
                "Events that are delivered in batches cannot be kept in order by a key.",
                "x_delivery",
                "order_key",
            )
        try:
            compile_value(stored["order_key"], TemplateDialect(template_environment(kind)))
        except TemplateError as error:
            raise InvalidFunctionError(str(error), "x_delivery", "order_key") from None
    return stored


@dataclass(frozen=True, slots=True)
class Retry:
    """Retries of failed requests; a field that is None has the server's default."""

    attempts: int | None = None
    base_ms: int | None = None
    max_ms: int | None = None
    max_age_s: int | None = None


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """Maximum number of events in a run, and how long the first waits for others."""

    max_events: int
    max_wait_ms: int


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """``x_delivery`` in the form in which runs use it."""

    retry: Retry | None = None
    per_s: float | None = None
    batch: BatchPolicy | None = None
    order: Program | None = None

    def order_key(self, globals_: dict[str, Any]) -> str | None:
        """Return the key of runs that are kept in order; None for no order.

        Raises the errors of `hoglab.hog.run.evaluate`.
        """
        if self.order is None:
            return None
        value = evaluate(self.order, globals_)
        if not is_truthy(value):
            return None
        text = to_string(value)
        if len(text) <= MAX_ORDER_KEY_CHARS and text.isprintable():
            return text
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


DEFAULT = DeliveryPolicy()


def compile_delivery(stored: Mapping[str, Any] | None) -> DeliveryPolicy:
    """Return the policy of delivery options. Raises `HogSourceError`."""
    if not stored:
        return DEFAULT
    order, batch = stored.get("order_key"), stored.get("batch")
    return DeliveryPolicy(
        retry=Retry(**stored["retry"]) if "retry" in stored else None,
        per_s=stored["rate_limit"]["per_s"] if "rate_limit" in stored else None,
        batch=None if batch is None else BatchPolicy(batch["max_events"], batch.get("max_wait_ms", 1000)),
        order=None if order is None else compile_template(order, MASKING_HASHES),
    )
