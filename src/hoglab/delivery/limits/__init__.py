"""Fairness: limits of one function, project or destination on shared resources."""

from hoglab.delivery.limits import function_breaker, in_flight
from hoglab.delivery.limits.backpressure import Backpressure
from hoglab.delivery.limits.breakers import Breakers
from hoglab.delivery.limits.claim_size import ClaimSizes
from hoglab.delivery.limits.destination_breaker import DestinationBreakers, OutageWatch
from hoglab.delivery.limits.rate_limit import RateLimiter

__all__ = [
    "Backpressure",
    "Breakers",
    "ClaimSizes",
    "DestinationBreakers",
    "OutageWatch",
    "RateLimiter",
    "function_breaker",
    "in_flight",
]
