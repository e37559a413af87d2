"""What an operator can set: environment variables ``HOGLAB_*``, overridden by command-line options.

Rooms never read this module: they are given what they need by `hoglab.app`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from hoglab.delivery.mail import MailServer

MIB = 1024 * 1024


class SettingsError(Exception):
    """A setting has a value that cannot be used; the text is one line for the operator."""


class Settings(BaseSettings):
    """All settings of one server. Every one can be given as ``HOGLAB_<NAME>``."""

    model_config = SettingsConfigDict(env_prefix="HOGLAB_", extra="ignore", frozen=True)

    data: Path = Field(Path("hoglab-data"), description="Directory that holds everything.")
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    site_url: str | None = Field(
        None, description="Address under which people reach this server; default http://HOST:PORT."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level logged.")
    log_format: Literal["console", "json"] = Field("console", description="How log lines look.")
    access_log: bool = Field(True, description="Log one line for each API request.")

    bootstrap_api_key: str | None = Field(
        None, description="Personal API key (phx_…) made at first start instead of a random one."
    )
    bootstrap_project_token: str | None = Field(
        None, description="Project token (phc_…) made at first start instead of a random one."
    )
    secret_keys: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Fernet keys for secrets at rest, newest first, comma-separated; "
        "default: a key file in the data directory.",
    )

    fetch_allow_cidrs: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Internal networks that hog functions may reach, comma-separated (10.0.0.0/8,…)."
    )
    fetch_allow_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Internal host names that hog functions may reach, comma-separated."
    )
    fetch_timeout_s: float = Field(
        10.0, gt=0, le=60, description="Longest time of a request of a hog function."
    )
    fetch_max_request_bytes: int = Field(
        MIB, ge=1024, le=64 * MIB, description="Largest body of a request of a hog function."
    )
    fetch_max_response_bytes: int = Field(
        2 * MIB, ge=1024, le=64 * MIB, description="What is read of the answer to a request, decompressed."
    )
    smtp_url: SecretStr | None = Field(
        None,
        description="Mail server for the e-mails of hog functions: smtp://user:password@host:587 (STARTTLS), "
        "smtps://… (TLS from the start) or smtp://host:25?tls=none; default: no e-mails.",
    )
    function_time_s: float = Field(
        1.0,
        gt=0,
        le=10,
        description="Computing time of one run of a hog function's body, over all its turns.",
    )
    function_calls: int = Field(
        5,
        ge=1,
        le=100,
        description="Calls (fetch, sendEmail, sleep) that one run of a hog function may make.",
    )
    filter_time_s: float = Field(
        1.0,
        gt=0,
        le=10,
        description="Computing time of one evaluation of a hog function's filter or inputs.",
    )
    log_retention_days: int = Field(
        90, ge=1, le=3650, description="How long the logs and metrics of hog functions are kept."
    )
    function_processes: int = Field(
        2, ge=1, le=64, description="Processes that run the bodies of hog functions; started when needed."
    )
    function_memory_bytes: int = Field(
        1024 * MIB, ge=128 * MIB, description="Address space of each of these processes."
    )
    function_program_bytes: int = Field(
        64 * MIB,
        ge=MIB,
        description="Memory of one program of a hog function, as the language accounts for it; at most half of the "
        "address space of a process.",
    )
    warehouse: Path | None = Field(
        None,
        description="Directory of the files that may be tables beside the events; default: `warehouse` in the data "
        "directory.",
    )
    sdk_files: Path | None = Field(
        None,
        description="Folder with the dist of posthog-js, served under /static/ for the snippet of web pages.",
    )
    metrics_token: SecretStr | None = Field(
        None,
        min_length=16,
        description="What readers of /metrics send as `Authorization: Bearer`; without it, only this machine may read "
        "them, and not through a proxy.",
    )
    rate_limit_enabled: bool = Field(False, description="Throttle the API (480 a minute, 4800 an hour).")

    geoip_database: Path | None = Field(
        None, description="GeoIP database (.mmdb) by which transformations give events `$geoip_…` properties."
    )

    max_request_bytes: int = Field(20 * MIB, ge=1024, description="Largest request body, decompressed.")
    request_memory_bytes: int = Field(
        256 * MIB,
        ge=MIB,
        description="Bodies of requests that are received or worked on at the same time; more are answered 503. "
        "Half of it is for senders who are not known yet, a quarter for one address, half for one project.",
    )
    event_log_max_bytes: int = Field(
        2048 * MIB, ge=MIB, description="Events that may wait for ingestion before capture answers 503."
    )
    min_free_disk_bytes: int = Field(
        200 * MIB, ge=0, description="Capture answers 503 when the disk has less free space than this."
    )
    event_store_memory: str = Field(
        "1GB",
        pattern=r"^\d+(\.\d+)?\s?(KB|MB|GB|KiB|MiB|GiB)$",
        description="Memory for queries.",
    )
    query_timeout_s: float = Field(60.0, gt=0, description="Longest time of one analysis query.")
    results_refresh_s: float = Field(
        60.0, ge=0, description="A running experiment's newest point is computed anew when older than this."
    )
    results_state_max_bytes: int = Field(
        8192 * MIB,
        ge=0,
        description="What results may keep of events in results-state.duckdb, so that only new ones cost; 0: nothing.",
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

    @property
    def warehouse_directory(self) -> Path:
        """Where the files of tables beside the events are."""
        return self.warehouse if self.warehouse is not None else self.data / "warehouse"

    @property
    def public_url(self) -> str:
        """The address that links outside of requests start with, without a slash at the end."""
        return (self.site_url or f"http://{self.host}:{self.port}").rstrip("/")

    @field_validator("smtp_url")
    @classmethod
    def _address_of_a_mail_server(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None or not value.get_secret_value().strip():
            return None
        MailServer.parse(value.get_secret_value())
        return value

    @property
    def mail_server(self) -> MailServer | None:
        """Where the e-mails of functions go."""
        return None if self.smtp_url is None else MailServer.parse(self.smtp_url.get_secret_value())

    @property
    def metrics_secret(self) -> str | None:
        """What readers of the metrics send."""
        return None if self.metrics_token is None else self.metrics_token.get_secret_value()

    @field_validator("secret_keys", "fetch_allow_cidrs", "fetch_allow_hosts", mode="before")
    @classmethod
    def _split_on_commas(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value


def load(**overrides: Any) -> Settings:
    """Settings from the environment, with the given values (those that are not None) on top.

    Raises `SettingsError` with one line that names the variable and what is wrong with it.
    """
    try:
        return Settings(**{name: value for name, value in overrides.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = "HOGLAB_" + "_".join(str(part) for part in first["loc"][:1]).upper()
        raise SettingsError(f"{name}: {first['msg']}") from error
