"""Settings for operators: environment variables ``HOGLAB_*``, overridden by command-line options.

Rooms never read these modules: they are given what they need by `hoglab.app`, as `hoglab.settings.rooms` makes it.
"""

from hoglab.settings.loading import OF_CLIENTS, SECRET, SettingsError, load, unknown_variables
from hoglab.settings.processes import BESIDE_CORE, RoleName
from hoglab.settings.server import PREFIX, Settings

__all__ = [
    "BESIDE_CORE",
    "OF_CLIENTS",
    "PREFIX",
    "SECRET",
    "RoleName",
    "Settings",
    "SettingsError",
    "load",
    "unknown_variables",
]
