"""Documents: the pages about the language and the templates, made from what they describe."""
