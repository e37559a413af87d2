"""Functions in memory, ready to run; and transformations."""

from hoglab.functions.runtime import transformations
from hoglab.functions.runtime.compile import (
    CompiledFunction,
    CompiledMapping,
    CompiledMasking,
    FunctionSet,
    compile_configuration,
    compile_filter,
)
from hoglab.functions.runtime.geoip import GeoIp, GeoIpError
from hoglab.functions.runtime.globals import filter_globals
from hoglab.functions.runtime.recompile import Recompiler
from hoglab.functions.runtime.registry import FunctionRegistry, ProjectFunctions

__all__ = [
    "CompiledFunction",
    "CompiledMapping",
    "CompiledMasking",
    "FunctionRegistry",
    "FunctionSet",
    "GeoIp",
    "GeoIpError",
    "ProjectFunctions",
    "Recompiler",
    "compile_configuration",
    "compile_filter",
    "filter_globals",
    "transformations",
]
