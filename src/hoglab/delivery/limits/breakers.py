"""The circuit breakers of delivery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hoglab.delivery.limits.destination_breaker import DestinationBreakers
    from hoglab.delivery.limits.function_breaker import FunctionBreakers


@dataclass(frozen=True, slots=True)
class Breakers:
    """The breakers of slow functions, and of destinations that are away."""

    functions: FunctionBreakers
    destinations: DestinationBreakers
