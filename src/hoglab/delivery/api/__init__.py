"""Endpoints of delivery."""

from hoglab.delivery.api import routes
from hoglab.delivery.api.backfill_routes import backfill_router
from hoglab.delivery.api.dead_letter_routes import dead_letter_router
from hoglab.delivery.api.run_routes import run_router
from hoglab.delivery.api.sample_routes import sample_router

__all__ = [
    "backfill_router",
    "dead_letter_router",
    "routes",
    "run_router",
    "sample_router",
]
