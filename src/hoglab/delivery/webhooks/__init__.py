"""Webhooks: requests from others that start functions."""

from hoglab.delivery.webhooks.incoming import WebhookLimits, Webhooks
from hoglab.delivery.webhooks.reference import webhook_paths
from hoglab.delivery.webhooks.routes import webhook_routes

__all__ = [
    "WebhookLimits",
    "Webhooks",
    "webhook_paths",
    "webhook_routes",
]
