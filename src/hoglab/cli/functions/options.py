"""Options of the commands of ``hoglab functions``: the server, and how functions are named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from hoglab.cli.errors import OperatorError

if TYPE_CHECKING:
    from hoglab.cli.api_client import ApiClient

FunctionArgument = Annotated[str, typer.Argument(metavar="FUNCTION", help="Id or name of the function.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")]
FromOption = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help="The first moment (UTC).", show_default=False)
]
ToOption = Annotated[
    str | None,
    typer.Option("--to", metavar="TIME", help="The end, which is not in it (UTC).", show_default=False),
]


def function_path(client: ApiClient, wanted: str) -> str:
    """Return the path of a function in the API, by its id or its name. Raises `OperatorError`."""
    try:
        return f"/hog_functions/{UUID(wanted)}"
    except ValueError:
        pass
    matches: list[dict[str, Any]] = [
        function for function in client.pages("/hog_functions/", search=wanted) if function["name"] == wanted
    ]
    if len(matches) != 1:
        many = "no function is" if not matches else f"{len(matches)} functions are"
        raise OperatorError(f"{many} named {wanted!r}: give the id (`hoglab functions list`)")
    return f"/hog_functions/{matches[0]['id']}"
