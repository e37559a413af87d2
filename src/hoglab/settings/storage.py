"""Settings of storage: the data directory, or the databases in its place."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings


class StorageSettings(BaseSettings):
    """Places where a server keeps everything."""

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


def _with_password(address: SecretStr | None, file: Path | None, name: str = "password") -> str | None:
    if address is None:
        return None
    url = address.get_secret_value().strip()
    if file is None:
        return url
    return f"{url}{'&' if '?' in url else '?'}{name}={quote(file.read_text().strip(), safe='')}"
