"""The function library of Hog.  `LIBRARY` maps every name to its declaration.  spec: hog-language 10."""

from hoglab.hog.stdlib import (
    arithmetic,
    arrays,
    conversion,
    crypto,
    effects,
    encoding,
    higher_order,
    json_functions,
    logic,
    network,
    search,
    strings,
)
from hoglab.hog.stdlib.dates import formatting as date_format
from hoglab.hog.stdlib.dates import intervals as date_arithmetic
from hoglab.hog.stdlib.dates import moments as dates
from hoglab.hog.stdlib.registry import LIBRARY, Cost, Function, Parameter, function, parameter

__all__ = [
    "LIBRARY",
    "Cost",
    "Function",
    "Parameter",
    "arithmetic",
    "arrays",
    "conversion",
    "crypto",
    "date_arithmetic",
    "date_format",
    "dates",
    "effects",
    "encoding",
    "function",
    "higher_order",
    "json_functions",
    "logic",
    "network",
    "parameter",
    "search",
    "strings",
]
