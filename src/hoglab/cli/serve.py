"""``hoglab serve``."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import sys
from typing import TYPE_CHECKING, Annotated

import orjson
import structlog
import typer

from hoglab.cli.errors import OperatorError
from hoglab.cli.options import DatabaseOption, DataOption, load_settings
from hoglab.terminal import echo

if TYPE_CHECKING:
    from hoglab.accounts.bootstrap import FirstStart
    from hoglab.app import Hoglab
    from hoglab.app.server import ServerProcess
    from hoglab.http.server import Address
    from hoglab.settings import Settings

_log = structlog.get_logger("hoglab")

LEAST_ADDRESS_BYTES = 2 * 1024**3
"""Minimum for a limit of a process's address space (``ulimit -v``): engines and threads reserve more than they use."""

NO_UI = "The web UI is off (HOGLAB_UI=false)."
FIRST_START = """\
hoglab made a new project. This key is shown only once; keep it:

  personal API key   {key}
  project token      {token}

{login}

Send an event:

  curl {url}/capture/ -H 'Content-Type: application/json' \\
    -d '{{"api_key": "{token}", "event": "hello", "distinct_id": "me"}}'

See it arrive:

  curl -H 'Authorization: Bearer {key}' {url}/api/projects/{project}/events/

In Python, with the PostHog SDK (pip install posthog):

  from posthog import Posthog
  posthog = Posthog("{token}", host="{url}")
  posthog.capture("hello", distinct_id="me")
"""


def serve(
    host: Annotated[
        str | None,
        typer.Option("--host", help="Address to listen on (default: 127.0.0.1).", show_default=False),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="Port (default: 8000); 0 takes a free one.",
            show_default=False,
        ),
    ] = None,
    data: DataOption = None,
    database_url: DatabaseOption = None,
    role: Annotated[
        str | None,
        typer.Option(
            "--role",
            metavar="ROLE",
            help="Role of this process: all (default), or on a PostgreSQL database core, edge or deliver; with Kafka "
            "also api, analysis or ingest.",
            show_default=False,
        ),
    ] = None,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Start although files are missing or older than others, without what is lost.",
        ),
    ] = False,
    deliver: Annotated[
        bool, typer.Option("--deliver", help="Let go the runs of functions that are held since a restore.")
    ] = False,
) -> None:
    """Serve everything from one directory, or be one of several processes on a database, until SIGTERM or Ctrl-C."""
    os.umask(0o077)  # what engines make is for its owner alone
    gc.disable()  # there is no garbage until the server is built, which enables it then

    import uvloop

    from hoglab.http.logs import configure_logging
    from hoglab.old_names import renamed_variables
    from hoglab.settings import unknown_variables

    try:
        settings = load_settings(host=host, port=port, data=data, database_url=database_url, role=role)
        configure_logging(settings.log_level, settings.log_format)
        for old, new in renamed_variables(os.environ).items():
            _log.warning("renamed_setting", variable=old, use=new, works_until="the next release")
        for name, likely in unknown_variables(os.environ).items():
            _log.warning("unknown_setting", variable=name, **({"did_you_mean": likely} if likely else {}))
        uvloop.run(_serve(settings, accept_loss=accept_loss, deliver=deliver))
    except OperatorError as error:
        if os.environ.get("HOGLAB_LOG_FORMAT") != "json":
            raise
        configure_logging(
            "error", "json"
        )  # for the collector of the lines: the first output of hoglab is JSON, too
        _log.error("start_failed", reason=str(error))
        raise typer.Exit(1) from None
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # nobody reads it any more
            stream.flush()
    os._exit(0)  # all is closed; taking the interpreter down takes up to half a second of computing


def migrate(database_url: DatabaseOption = None) -> None:
    """Migrate the tables of a PostgreSQL database, creating missing ones; beside running servers, too.

    Servers wait for it at their start. The files of a data directory are migrated by `hoglab serve` itself.
    """
    from hoglab.storage.database import DatabaseError
    from hoglab.storage.engines import upgrade_databases

    address = load_settings(database_url=database_url).database_address
    if address is None:
        raise OperatorError("no PostgreSQL database is named: give --database-url or HOGLAB_DATABASE_URL")
    try:
        changed = upgrade_databases(address)
    except DatabaseError as error:
        raise OperatorError(str(error)) from error
    echo("the tables are up to date now" if changed else "the tables were up to date")


async def _serve(settings: Settings, *, accept_loss: bool, deliver: bool) -> None:
    from hoglab.app import HTTP_GRACE_S
    from hoglab.http.server import AskedToEndError, ListenError, claim, ended_by_signals
    from hoglab.http.server import serve as serve_http

    _check_address_space()
    stop = asyncio.Event()
    try:
        with claim(settings.host, settings.port) as address:  # before the directory is touched
            # A free port where none was named.
            with ended_by_signals(stop):
                process = _open(
                    settings.model_copy(update={"port": address.port}),
                    accept_loss=accept_loss,
                    deliver=deliver,
                )
            _start(process)
            try:
                await serve_http(
                    process.http,
                    address,
                    stop=stop,
                    grace_s=HTTP_GRACE_S,
                    ready=lambda address: _announce(address, process, settings),
                )
            finally:
                await asyncio.to_thread(process.stop)
    except AskedToEndError:
        _log.info("ended_at_start")
    except ListenError as error:
        raise OperatorError(str(error)) from error
    except MemoryError as error:
        raise OperatorError(
            "there is not enough memory for the server: give it 2 GiB of addresses"
        ) from error


def _open(settings: Settings, *, accept_loss: bool, deliver: bool) -> ServerProcess:
    from hoglab.accounts.errors import AccountError
    from hoglab.app import Hoglab, JoiningProcess, NotPreparedError
    from hoglab.delivery.outbound import InvalidAllowanceError
    from hoglab.functions.runtime import GeoIpError
    from hoglab.functions.secrets import SecretsError
    from hoglab.settings import BESIDE_CORE
    from hoglab.storage.database import DatabaseError
    from hoglab.storage.directory import DirectoryError
    from hoglab.storage.event_store import EventStoreUnavailableError
    from hoglab.ui.assets import AssetError

    is_beside = settings.role in BESIDE_CORE
    if is_beside and (accept_loss or deliver):
        raise OperatorError("--accept-loss and --deliver are for a process with the role all, core or api")
    try:
        if is_beside:
            return JoiningProcess.open(settings)
        return Hoglab.open(settings, accept_loss=accept_loss, deliver=deliver)
    except InvalidAllowanceError as error:
        raise OperatorError(f"HOGLAB_FETCH_ALLOW_CIDRS: {error}") from error
    except (
        DirectoryError,
        DatabaseError,
        EventStoreUnavailableError,
        AccountError,
        AssetError,
        GeoIpError,
        NotPreparedError,
        SecretsError,
    ) as error:
        raise OperatorError(str(error)) from error


def _check_address_space() -> None:
    """Refuse a start that would end in the middle, in the first engine that gets no memory."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESS_BYTES:
        raise OperatorError(
            f"the address space of this process is limited to {limit // 2**20} MiB (ulimit -v), not enough for "
            f"the server: give it {LEAST_ADDRESS_BYTES // 2**20} MiB or no limit"
        )


def _start(process: ServerProcess) -> None:
    try:
        process.start()
    except (MemoryError, RuntimeError) as error:  # of threads: there is no memory for one more
        process.stop()
        raise OperatorError(
            f"the server cannot start: {error}; give it more memory (2 GiB of addresses)"
        ) from error


def _announce(address: Address, process: ServerProcess, settings: Settings) -> None:
    from hoglab.app import Hoglab

    if isinstance(process, Hoglab):
        _announce_server(address, process, settings)
    if settings.log_format == "json":
        _log.info("serving", url=address.url, role=settings.role)
    else:
        role = "" if settings.role == "all" else f" as {settings.role}"
        echo(f"hoglab is serving{role} on {address.url}", err=True)


def _announce_server(address: Address, hoglab: Hoglab, settings: Settings) -> None:
    as_json = settings.log_format == "json"
    site = settings.site_url or address.local_url
    hoglab.directory.note_address(site)
    first = hoglab.first_start
    if first is not None:
        token = hoglab.sessions.new_link(hoglab.accounts.owner_id()) if settings.ui else None
        text = (_first_start_line if as_json else _first_start_text)(address, first, site, token)
        with contextlib.suppress(
            OSError
        ):  # nobody reads it: then it was not shown, and the next start shows it
            echo(text)
            sys.stdout.flush()
            hoglab.announced()


def _first_start_text(address: Address, first: FirstStart, site: str, login_token: str | None) -> str:
    from hoglab.accounts.sessions.service import login_line

    return FIRST_START.format(
        key=first.api_key,
        token=first.project_token,
        login=NO_UI if login_token is None else login_line(site, login_token),
        url=address.url,
        project=first.project_id,
    )


def _first_start_line(address: Address, first: FirstStart, site: str, login_token: str | None) -> str:
    """Return the first start's facts as a line of JSON, for programs."""
    from hoglab.accounts.sessions.service import login_address

    facts = {
        "event": "first_start",
        "personal_api_key": first.api_key,
        "project_token": first.project_token,
        "project_id": first.project_id,
        "url": address.url,
        "login_url": None if login_token is None else login_address(site, login_token),
    }
    return orjson.dumps(facts).decode()
