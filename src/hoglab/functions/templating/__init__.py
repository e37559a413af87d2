"""Templates inside of inputs, in Hog and in Liquid."""

from hoglab.functions.templating.hog_templates import TemplateDialect, TemplateError, compile_value
from hoglab.functions.templating.liquid import LiquidTemplate, LiquidTemplateError, has_markup, renderer

__all__ = [
    "LiquidTemplate",
    "LiquidTemplateError",
    "TemplateDialect",
    "TemplateError",
    "compile_value",
    "has_markup",
    "renderer",
]
