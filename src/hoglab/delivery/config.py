"""Settings and limits of delivery."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hoglab.delivery.bodies.child import BodyLimits
from hoglab.delivery.execution.retries import LASTING, RetryPolicy
from hoglab.delivery.outbound import AddressGuard, FetchLimits, MailLimits
from hoglab.delivery.webhooks import WebhookLimits
from hoglab.delivery.worker import WorkerLimits

if TYPE_CHECKING:
    from pathlib import Path

    from hoglab.delivery.outbound import MailServer


@dataclass(frozen=True, slots=True)
class DeliveryConfig:
    """Settings and limits of delivery in one process."""

    site_url: str
    """Address of the server in the globals of functions."""
    guard: AddressGuard = field(default_factory=AddressGuard)
    retries: RetryPolicy = LASTING
    worker: WorkerLimits = field(default_factory=WorkerLimits)
    bodies: BodyLimits = field(default_factory=BodyLimits)
    fetch: FetchLimits = field(default_factory=FetchLimits)
    mail: MailLimits = field(default_factory=MailLimits)
    mail_server: MailServer | None = None
    """Server that sends the e-mails of functions; None for none."""
    webhooks: WebhookLimits = field(default_factory=WebhookLimits)
    geoip_database: Path | None = None
    """Database in which transformations look up addresses."""
    runs: bool = True
    """Whether queued runs are executed here, and not only in other processes."""
