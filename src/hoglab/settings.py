"""Settings for operators: environment variables ``HOGLAB_*``, overridden by command-line options.

Rooms never read this module: they are given what they need by `hoglab.app`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

from pydantic import Field, HttpUrl, SecretStr, TypeAdapter, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from hoglab import old_names
from hoglab.delivery.execution.retries import RetryPolicy, parse_policy
from hoglab.delivery.outbound import MailServer
from hoglab.patterns import anchored

if TYPE_CHECKING:
    from hoglab.storage.engines import EngineOptions

_SIZE = anchored(r"\d+(\.\d+)?\s?(KB|MB|GB|KiB|MiB|GiB)")
MIB = 1024 * 1024
RoleName = Literal["all", "core", "api", "analysis", "edge", "ingest", "deliver"]
BESIDE_CORE = frozenset[RoleName]({"analysis", "edge", "ingest", "deliver"})
"""Roles of processes that begin no installation: they wait until another one has."""
PREFIX = "HOGLAB_"
OF_CLIENTS = {"HOGLAB_API_KEY": "personal API key (`phx_…`)", "HOGLAB_URL": "address of the server"}
"""Variables that are no settings of a server, with what they hold: commands that are clients of one read them."""
SECRET = frozenset(
    {
        "bootstrap_api_key",
        "bootstrap_project_token",
        "database_url",
        "event_log_url",
        "event_store_url",
        "metrics_token",
        "secret_keys",
        "smtp_url",
    }
)
"""Settings whose values are in no message."""
SDK_FILE = "array.js"
"""File that the snippet of web pages loads first; the dist of posthog-js has it."""


class SettingsError(Exception):
    """A setting has a value that cannot be used; the text is one line for the operator."""


class Settings(BaseSettings):
    """All settings of one server. Every one can be given as ``HOGLAB_<NAME>``.

    The description of a setting without a default value ends with "Default:" and what holds then.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    data: Path = Field(Path("hoglab-data"), description="Directory that holds everything.")
    database_url: SecretStr | None = Field(
        None,
        description="PostgreSQL database that holds everything but events; `hoglab migrate` prepares it. Default: "
        "files in the data directory.",
        examples=["postgresql://hoglab@db.example.com/hoglab"],
    )
    database_password_file: Path | None = Field(
        None,
        description="File with the password for the PostgreSQL database, if it is not in the address. Default: "
        "none.",
        examples=["/run/secrets/hoglab-database"],
    )
    event_store_url: SecretStr | None = Field(
        None,
        description="ClickHouse database that holds the events; needs HOGLAB_DATABASE_URL. Default: a file in the "
        "data directory.",
        examples=["clickhouse://hoglab@events.example.com:8123/hoglab"],
    )
    event_store_password_file: Path | None = Field(
        None,
        description="File with the password for the ClickHouse database, if it is not in the address. Default: "
        "none.",
        examples=["/run/secrets/hoglab-events"],
    )
    event_log_url: SecretStr | None = Field(
        None,
        description="Topic of Kafka into which events are accepted, created if missing; needs "
        "HOGLAB_DATABASE_URL and HOGLAB_EVENT_STORE_URL. Default: the database.",
        examples=["kafka://kafka1.example.com:9092,kafka2.example.com:9092/hoglab?partitions=16"],
    )
    event_log_password_file: Path | None = Field(
        None,
        description="File with the password for Kafka (`sasl.password`), if it is not in the address. Default: "
        "none.",
        examples=["/run/secrets/hoglab-kafka"],
    )
    host: str = Field("127.0.0.1", description="Address to listen on.", examples=["192.0.2.10"])
    port: int = Field(
        8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.", examples=["8000"]
    )
    site_url: str | None = Field(
        None,
        description="Address under which people reach this server; behind a proxy, with its `https://`. Default: "
        "`http://HOST:PORT`, or what the request names.",
        examples=["https://flags.example.com"],
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least level logged.", examples=["info"]
    )
    log_format: Literal["console", "json"] = Field(
        "console", description="Format of log lines.", examples=["json"]
    )
    access_log: bool = Field(True, description="Log one line for each API request.", examples=["false"])
    ui: bool = Field(True, description="Serve the web UI below /ui/.", examples=["false"])

    bootstrap_api_key: str | None = Field(
        None,
        description="Personal API key (`phx_…`) that the first start makes, for containers and CI. Default: a "
        "random key.",
    )
    bootstrap_project_token: str | None = Field(
        None,
        description="Project token (`phc_…`) that the first start makes, for containers and CI. Default: a random "
        "token.",
    )
    secret_keys: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Fernet keys that encrypt stored secrets, newest first. Default: the file `secret-keys` in "
        "the data directory.",
    )

    role: RoleName = Field(
        "all",
        description="Role of this process. `all` does everything. Several processes share one PostgreSQL "
        "database: one `core`, and any number of `edge` and `deliver`; with Kafka, any number "
        "of each role, also of `ingest`, and of `api` and `analysis`, which share the work of "
        "a core.",
        examples=["edge"],
    )
    server_wait_s: float = Field(
        10.0,
        ge=0,
        description="Time that a server waits at its start for another one on the same PostgreSQL "
        "database to end.",
        examples=["10"],
    )

    fetch_allow_cidrs: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Internal networks that hog functions may reach (10.0.0.0/8,…). Default: no internal network."
        "Internal networks that hog functions may reach (10.0.0.0/8,…). Default: no internal network.",
    )
    fetch_allow_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Internal host names that hog functions may reach. Default: no internal host."
    )
    fetch_timeout_s: float = Field(
        10.0, gt=0, le=60, description="Longest time of a request of a hog function.", examples=["10"]
    )
    fetch_max_request_bytes: int = Field(
        MIB,
        ge=1024,
        le=64 * MIB,
        description="Largest body of a request of a hog function.",
        examples=["1048576"],
    )
    fetch_max_response_bytes: int = Field(
        2 * MIB,
        ge=1024,
        le=64 * MIB,
        description="Largest part of an answer to such a request that is read, decompressed.",
        examples=["2097152"],
    )
    delivery_retries: str = Field(
        "24h",
        description="Time for which hog functions repeat a request that may succeed later (1m to 7d); the "
        "waits double, up to half an hour. `posthog`: three attempts within five seconds.",
    )
    smtp_url: SecretStr | None = Field(
        None,
        description="Mail server for the e-mails of hog functions: `smtp://user:password@host:587` "
        "(STARTTLS), `smtps://…` (TLS from the start) or `smtp://host:25?tls=none`. Default: no e-mails.",
        examples=["smtp://user:password@mail.example.com:587"],
    )
    smtp_recipient_domains: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Domains to which hog functions may send e-mails. Events may name recipients, and so may "
        "strangers. Default: any domain.",
        examples=["example.com,example.org"],
    )
    function_time_s: float = Field(
        1.0,
        gt=0,
        le=10,
        description="Computing time of one run of a hog function's body, over all its turns.",
        examples=["1"],
    )
    function_calls: int = Field(
        5,
        ge=1,
        le=100,
        description="Calls (`fetch`, `sendEmail`, `sleep`) that one run of a hog function may make.",
        examples=["5"],
    )
    filter_time_s: float = Field(
        1.0,
        gt=0,
        le=10,
        description="Computing time of one evaluation of a hog function's filter or inputs.",
        examples=["1"],
    )
    log_retention_days: int = Field(
        90,
        ge=1,
        le=3650,
        description="Time for which the logs and metrics of hog functions are kept.",
        examples=["90"],
    )
    function_processes: int = Field(
        2,
        ge=1,
        le=64,
        description="Processes that run the bodies of hog functions; started when needed.",
        examples=["2"],
    )
    function_memory_bytes: int = Field(
        1024 * MIB,
        ge=128 * MIB,
        description="Address space of each process that runs bodies of hog functions.",
        examples=["1073741824"],
    )
    function_program_bytes: int = Field(
        64 * MIB,
        ge=MIB,
        description="Memory of one program of a hog function, as the language counts it; at most half of "
        "HOGLAB_FUNCTION_MEMORY_BYTES.",
        examples=["67108864"],
    )
    warehouse: Path | None = Field(
        None,
        description="Directory of the files that may be registered as tables for metrics; no other file "
        "is read. Default: `warehouse` in the data directory.",
        examples=["/srv/tables"],
    )
    sdk_files: Path | None = Field(
        None,
        description="Folder with the `dist` of the npm package posthog-js, served under /static/ for web "
        "pages. Default: not served.",
        examples=["node_modules/posthog-js/dist"],
    )
    rate_limit_enabled: bool = Field(
        False,
        description="Throttle the API: 480 requests a minute and 4,800 an hour for each key.",
        examples=["true"],
    )
    metrics_token: SecretStr | None = Field(
        None,
        min_length=16,
        description="Token that readers of /metrics send as `Authorization: Bearer`. Default: only this machine "
        "may read /metrics, by the name localhost or a loopback address, and not through a proxy.",
        examples=["0123456789abcdef"],
    )

    geoip_database: Path | None = Field(
        None,
        description="GeoIP database (.mmdb) from which a transformation gives events and persons "
        "`$geoip_…` properties. Default: none.",
    )

    max_request_bytes: int = Field(
        20 * MIB, ge=1024, description="Largest request body, decompressed.", examples=["20971520"]
    )
    request_memory_bytes: int = Field(
        256 * MIB,
        ge=MIB,
        description="Largest memory for request bodies at one time; more are answered 503. Unknown "
        "senders share half of it, one address gets a quarter, one project half.",
        examples=["268435456"],
    )
    event_log_max_bytes: int = Field(
        2048 * MIB,
        ge=MIB,
        description="Largest backlog of events that wait for ingestion; beyond it, capture answers 503. "
        "With several projects, each may fill half of it.",
        examples=["2147483648"],
    )
    quarantine_max_bytes: int = Field(
        256 * MIB,
        ge=MIB,
        description="Largest size of the quarantine, which holds events that could not be processed; "
        "beyond it, ingestion stops.",
    )
    event_retention_days: int | None = Field(
        None,
        ge=1,
        le=36_500,
        description="Longest time for which events are kept; a project may set a shorter one. Default: for ever."
        "Longest time for which events are kept; a project may set a shorter one. Default: for ever.",
    )
    min_free_disk_bytes: int = Field(
        200 * MIB,
        ge=0,
        description="Least free space on the disk; below it, capture answers 503.",
        examples=["200000000"],
    )
    event_store_memory: str = Field(
        "1GB",
        description="Memory of the query engine: a number and KB, MB, GB, KiB, MiB or GiB.",
        examples=["2GB"],
    )
    query_timeout_s: float = Field(
        60.0, gt=0, description="Longest time of one analysis query.", examples=["60"]
    )
    results_refresh_s: float = Field(
        60.0,
        ge=0,
        description="Age at which the newest point of a running experiment is computed again.",
        examples=["60"],
    )
    aggregate_cache_max_bytes: int = Field(
        8192 * MIB,
        ge=0,
        description="Largest size of `aggregate-cache.duckdb`, which spares results the events of former days; 0: "
        "no cache.",
        examples=["8589934592"],
    )

    @field_validator("request_memory_bytes")
    @classmethod
    def _room_for_one_request(cls, value: int, known: ValidationInfo) -> int:
        least = 4 * known.data.get("max_request_bytes", 0)
        if value < least:
            raise ValueError(
                f"must be at least {least}, four times HOGLAB_MAX_REQUEST_BYTES: one address gets a quarter"
            )
        return value

    @field_validator("function_program_bytes")
    @classmethod
    def _within_a_process(cls, value: int, known: ValidationInfo) -> int:
        most = known.data.get("function_memory_bytes", value * 2) // 2
        if value > most:
            raise ValueError(f"must not be above {most}, half of HOGLAB_FUNCTION_MEMORY_BYTES")
        return value

    @field_validator("warehouse")
    @classmethod
    def _beside_the_data(cls, value: Path | None, known: ValidationInfo) -> Path | None:
        data = known.data.get("data")
        if value is not None and data is not None and data.resolve().is_relative_to(value.resolve()):
            raise ValueError("must not hold the data directory, whose files are nobody's tables")
        return value

    @field_validator("event_store_memory")
    @classmethod
    def _size_with_unit(cls, value: str) -> str:
        if not _SIZE.fullmatch(value):
            raise ValueError("must be a number and KB, MB, GB, KiB, MiB or GiB")
        return value

    @field_validator("site_url")
    @classmethod
    def _address_of_a_site(cls, value: str | None) -> str | None:
        if value is None or not value.strip():
            return None
        rule = "must be an address that starts with http:// or https:// and has no ? or #"
        try:
            url = TypeAdapter(HttpUrl).validate_python(value.strip())
        except ValidationError:
            raise ValueError(rule) from None
        if url.query is not None or url.fragment is not None:
            raise ValueError(rule)
        return value.strip()

    @field_validator("sdk_files")
    @classmethod
    def _folder_of_scripts(cls, value: Path | None) -> Path | None:
        if value is not None and not (value / SDK_FILE).is_file():
            raise ValueError(f"must be the folder dist of the npm package posthog-js; no {SDK_FILE} is there")
        return value

    @field_validator("database_url")
    @classmethod
    def _address_of_a_database(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None or not value.get_secret_value().strip():
            return None
        if not value.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("must begin with postgresql://")
        return value

    @field_validator("event_store_url")
    @classmethod
    def _address_of_an_event_store(cls, value: SecretStr | None, known: ValidationInfo) -> SecretStr | None:
        if value is None or not value.get_secret_value().strip():
            return None
        if not value.get_secret_value().startswith("clickhouse://"):
            raise ValueError("must begin with clickhouse://")
        if known.data.get("database_url") is None:
            raise ValueError(
                "events in ClickHouse go with everything else in PostgreSQL: name a database with HOGLAB_DATABASE_URL, "
                "or leave this out to have the events in the data directory"
            )
        return value

    @field_validator("event_log_url")
    @classmethod
    def _address_of_a_topic(cls, value: SecretStr | None, known: ValidationInfo) -> SecretStr | None:
        if value is None or not value.get_secret_value().strip():
            return None
        if not value.get_secret_value().startswith("kafka://"):
            raise ValueError("must begin with kafka://")
        if known.data.get("database_url") is None:
            raise ValueError(
                "Kafka takes events of servers on PostgreSQL: name a database with HOGLAB_DATABASE_URL, or leave this "
                "out to have the event log in the data directory"
            )
        if known.data.get("event_store_url") is None:
            raise ValueError(
                "Kafka goes with events in ClickHouse: name a database with HOGLAB_EVENT_STORE_URL, or leave this out "
                "to have the event log in PostgreSQL"
            )
        return value

    @field_validator("database_password_file", "event_log_password_file", "event_store_password_file")
    @classmethod
    def _file_with_a_password(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_file():
            raise ValueError("must be a file")
        return value

    @field_validator("role")
    @classmethod
    def _in_a_shape(cls, value: RoleName, known: ValidationInfo) -> RoleName:
        if value != "all" and known.data.get("database_url") is None:
            raise ValueError(
                "several processes work on a PostgreSQL database: name it with HOGLAB_DATABASE_URL, or let one process "
                "do everything in its directory, with the role all"
            )
        if value == "ingest" and known.data.get("event_log_url") is None:
            raise ValueError(
                "ingests the partitions of a topic of Kafka: name it with HOGLAB_EVENT_LOG_URL, or leave ingestion to "
                "the core, which does it where the event log is in PostgreSQL"
            )
        if value in ("api", "analysis") and known.data.get("event_log_url") is None:
            raise ValueError(
                "is a part of a core, and reads events in ClickHouse that come through Kafka: name these with "
                "HOGLAB_EVENT_STORE_URL and HOGLAB_EVENT_LOG_URL, or let one process do all of it, with the role core"
            )
        is_one_of_several = value in BESIDE_CORE or (value != "all" and known.data.get("event_log_url"))
        if is_one_of_several and not known.data.get("secret_keys"):
            raise ValueError(
                "needs HOGLAB_SECRET_KEYS, the same keys in all processes (those of a core or of an `all` that was "
                "given none are in the file secret-keys of its directory)"
            )
        return value

    @property
    def database_address(self) -> str | None:
        """The address of the PostgreSQL database, with its password; None where the data directory has all."""
        return _with_password(self.database_url, self.database_password_file)

    @property
    def event_log_address(self) -> str | None:
        """The address of the topic of Kafka, with its password; None where events are accepted into the database."""
        return _with_password(self.event_log_url, self.event_log_password_file, "sasl.password")

    @property
    def event_store_address(self) -> str | None:
        """The address of the ClickHouse database, with its password; None where the data directory has the events."""
        return _with_password(self.event_store_url, self.event_store_password_file)

    @property
    def warehouse_directory(self) -> Path:
        """Directory of the files of warehouse tables."""
        return self.warehouse if self.warehouse is not None else self.data / "warehouse"

    @property
    def public_url(self) -> str:
        """The address that links outside of requests start with, without a slash at the end."""
        return (self.site_url or f"http://{self.host}:{self.port}").rstrip("/")

    @property
    def path_prefix(self) -> str:
        """The path under which people reach this server, without a slash at the end: usually nothing."""
        return (HttpUrl(self.site_url).path or "").rstrip("/") if self.site_url else ""

    @field_validator("smtp_url")
    @classmethod
    def _address_of_a_mail_server(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None or not value.get_secret_value().strip():
            return None
        MailServer.parse(value.get_secret_value())
        return value

    @field_validator("delivery_retries")
    @classmethod
    def _is_retry_policy(cls, value: str) -> str:
        parse_policy(value)
        return value

    @property
    def retries(self) -> RetryPolicy:
        """Policy for retries of failed requests of functions."""
        return parse_policy(self.delivery_retries)

    @property
    def mail_server(self) -> MailServer | None:
        """Server that sends the e-mails of functions; None without one."""
        if self.smtp_url is None:
            return None
        return MailServer.parse(self.smtp_url.get_secret_value()).only_to(self.smtp_recipient_domains)

    @property
    def metrics_secret(self) -> str | None:
        """Token that readers of the metrics send; None without one."""
        return None if self.metrics_token is None else self.metrics_token.get_secret_value()

    @field_validator(
        "secret_keys", "fetch_allow_cidrs", "fetch_allow_hosts", "smtp_recipient_domains", mode="before"
    )
    @classmethod
    def _split_on_commas(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value


def _with_password(address: SecretStr | None, file: Path | None, name: str = "password") -> str | None:
    if address is None:
        return None
    url = address.get_secret_value().strip()
    if file is None:
        return url
    return f"{url}{'&' if '?' in url else '?'}{name}={quote(file.read_text().strip(), safe='')}"


def engine_options(settings: Settings) -> EngineOptions:
    """Return options of the engines in the settings."""
    from hoglab.storage.engines import EngineOptions  # not for commands that open none
    from hoglab.storage.table_files import TableDirectory

    return EngineOptions(
        event_log_bytes=settings.event_log_max_bytes,
        min_free_disk_bytes=settings.min_free_disk_bytes,
        event_store_memory=settings.event_store_memory,
        query_timeout_s=settings.query_timeout_s,
        trace_days=settings.log_retention_days,
        has_aggregate_cache=settings.aggregate_cache_max_bytes > 0,
        tables=TableDirectory(settings.warehouse_directory),
        database_url=settings.database_address,
        event_log_url=settings.event_log_address,
        event_store_url=settings.event_store_address,
        wait_s=settings.server_wait_s,
    )


def load(**overrides: Any) -> Settings:
    """Return settings from the environment, with the given values that are not None on top.

    A variable with an old name (`hoglab.old_names`) counts where the new one is not set. Raises `SettingsError` with
    one line that names the variable, its value, what is wrong with it, and an example.
    """
    environment = {name.upper(): value for name, value in os.environ.items()}
    renamed = {
        new.removeprefix(PREFIX).lower(): environment[old]
        for old, new in old_names.renamed_variables(environment).items()
    }
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**{**renamed, **given})
    except ValidationError as error:
        raise SettingsError(_explained(error.errors()[0])) from None  # its own text quotes what was given


def _explained(fault: Any) -> str:
    name = str(fault["loc"][0])
    rule = fault["msg"].removeprefix("Value error, ").removesuffix(".")
    value = "" if name in SECRET else f"{str(fault['input'])!r}: "
    field = Settings.model_fields.get(name)
    example = (
        ""
        if field is None or not field.examples
        else f" (example: {PREFIX}{name.upper()}={field.examples[0]})"
    )
    return f"{PREFIX}{name.upper()}: {value}{rule}{example}"


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return variables that look like settings and are none, each with the setting that is likely meant."""
    known = sorted(name.upper() for name in Settings.model_fields)
    unknown = sorted(
        name.removeprefix(PREFIX)
        for name in environment
        if name.startswith(PREFIX) and name not in OF_CLIENTS and name not in old_names.SETTINGS
    )
    likely = {name: difflib.get_close_matches(name, known, n=1) for name in unknown if name not in known}
    return {PREFIX + name: PREFIX + matches[0] if matches else None for name, matches in likely.items()}
