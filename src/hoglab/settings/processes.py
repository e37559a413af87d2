"""Settings of processes: what the first start makes, the secret keys, and the role."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings

from hoglab.settings.values import CommaSeparated

RoleName = Literal["all", "core", "api", "analysis", "edge", "ingest", "deliver"]
BESIDE_CORE = frozenset[RoleName]({"analysis", "edge", "ingest", "deliver"})
"""Roles of processes that begin no installation: they wait until another one has."""


class ProcessSettings(BaseSettings):
    """Beginning of an installation, and the part that one process has in it."""

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
    secret_keys: CommaSeparated = Field(
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
