"""Site functions: functions that run in browsers."""

from hoglab.functions.site.functions import (
    SITE_TYPES,
    SiteFunctions,
    SiteMappingParts,
    SiteParts,
    filter_program,
    transpile_input,
    transpiled,
)
from hoglab.functions.site.source import SiteSourceError, javascript_of

__all__ = [
    "SITE_TYPES",
    "SiteFunctions",
    "SiteMappingParts",
    "SiteParts",
    "SiteSourceError",
    "filter_program",
    "javascript_of",
    "transpile_input",
    "transpiled",
]
