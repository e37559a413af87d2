"""The exceptions that the official parser's module looks up by name when it is called."""


class BaseHogQLError(Exception):
    """What the parser's exceptions derive from."""


class SyntaxError(BaseHogQLError):  # noqa: A001 - the parser asks for this name
    """The text is not of the language."""


class NotImplementedError(BaseHogQLError):  # noqa: A001 - as above
    """The grammar knows the text, the parser does not."""


class ParsingError(BaseHogQLError):
    """The parser failed."""
