"""Documents: the generated pages about the language and the templates."""
