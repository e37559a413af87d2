"""The error of moves."""


class MoveError(Exception):
    """A move cannot be begun or finished. The message is one line, fit to be shown to an operator."""
