"""Settings of the room's tests."""

from hypothesis import settings

# How long an example takes says how busy the machine is; pytest's own timeout bounds a test.
settings.register_profile("statistics", deadline=None)
settings.load_profile("statistics")
