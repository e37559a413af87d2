"""``hoglab projects``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from hoglab.cli.accounts.opening import opened_accounts
from hoglab.cli.options import DataOption, JsonOption
from hoglab.terminal import echo, plain_console

projects_app = typer.Typer(help="Projects.", no_args_is_help=True)


@projects_app.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the new project.")],
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Make a project and print its id and token."""
    with opened_accounts(data) as accounts:
        organization = accounts.projects()[0].organization_id
        project = accounts.create_project(organization, name)
    if as_json:
        echo(json.dumps({"id": project.id, "name": project.name, "api_token": project.api_token}))
    else:
        echo(f"project {project.id}, token {project.api_token}")


@projects_app.command("list")
def list_projects(as_json: JsonOption = False, data: DataOption = None) -> None:
    """List the projects with their tokens."""

    from hoglab.reports.tables import light_table, whole

    with opened_accounts(data) as accounts:
        projects = accounts.projects()
    if as_json:
        echo(json.dumps([{"id": p.id, "name": p.name, "api_token": p.api_token} for p in projects]))
        return
    table = light_table(None, "Id", "Name", whole("Token"), "Time zone")
    for project in projects:
        table.add_row(str(project.id), project.name, project.api_token, project.timezone)
    plain_console().print(table)
