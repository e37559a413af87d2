"""What the fault tests of delivery share with its other tests."""

from tests.delivery.conftest import bodies, house, prepared, receiver

__all__ = ["bodies", "house", "prepared", "receiver"]
