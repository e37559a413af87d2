"""Settings of operation: further files, access, and limits of requests, events and queries."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings

from hoglab.patterns import anchored
from hoglab.settings.values import MIB

_SIZE = anchored(r"\d+(\.\d+)?\s?(KB|MB|GB|KiB|MiB|GiB)")
SDK_FILE = "array.js"
"""File that the snippet of web pages loads first; the dist of posthog-js has it."""


class OperationSettings(BaseSettings):
    """Files of the operator, access to the server, and limits of requests, events and queries."""

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
    answer_memory_bytes: int = Field(
        256 * MIB,
        ge=MIB,
        description="Largest memory for long answers that clients have not read yet; beyond it, those that were begun "
        "first are cut off. Unknown readers share half of it, one address gets a quarter, one project half.",
        examples=["268435456"],
    )
    event_log_max_bytes: int = Field(
        2048 * MIB,
        ge=MIB,
        description="Largest backlog of events that wait for ingestion; beyond it, capture answers 503. "
        "With several projects, each may fill half of it.",
        examples=["2147483648"],
    )
    ingestion_linger_s: float = Field(
        0.2,
        ge=0,
        le=60,
        description="Least time between two batches of few events, which spares processors where requests have few "
        "events each; 0: none. Nobody who waits for events lingers. With Kafka it is half a second.",
        examples=["0.2"],
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
        description="Longest time for which events are kept; a project may set a shorter one. Default: for ever.",
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

    @field_validator("sdk_files")
    @classmethod
    def _folder_of_scripts(cls, value: Path | None) -> Path | None:
        if value is not None and not (value / SDK_FILE).is_file():
            raise ValueError(f"must be the folder dist of the npm package posthog-js; no {SDK_FILE} is there")
        return value

    @property
    def metrics_secret(self) -> str | None:
        """Token that readers of the metrics send; None without one."""
        return None if self.metrics_token is None else self.metrics_token.get_secret_value()
