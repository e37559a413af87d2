"""Times are tested on purpose elsewhere; a busy machine must not fail a property."""

from hypothesis import HealthCheck, settings

settings.register_profile("hog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hog")
