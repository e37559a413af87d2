"""Configuration of functions: from a request body to the stored, compiled and checked form."""

from hoglab.functions.configuration import delivery_policy, inputs, schemas, stored
from hoglab.functions.configuration.builder import (
    ORDERED_TYPES,
    TESTED_TYPES,
    Builder,
    FunctionPatch,
    recompiled,
    unknown_inputs,
)
from hoglab.functions.configuration.compiler_version import COMPILER_VERSION
from hoglab.functions.configuration.filtering import TABLE_SOURCES
from hoglab.functions.configuration.model import Configuration
from hoglab.functions.configuration.secret_history import NewlySecret

__all__ = [
    "COMPILER_VERSION",
    "ORDERED_TYPES",
    "TABLE_SOURCES",
    "TESTED_TYPES",
    "Builder",
    "Configuration",
    "FunctionPatch",
    "NewlySecret",
    "delivery_policy",
    "inputs",
    "recompiled",
    "schemas",
    "stored",
    "unknown_inputs",
]
