"""Settings of hog functions: what they may reach, and the limits of their runs."""

from __future__ import annotations

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings

from hoglab.delivery.execution.retries import RetryPolicy, parse_policy
from hoglab.delivery.outbound import MailServer
from hoglab.settings.values import MIB, CommaSeparated


class FunctionSettings(BaseSettings):
    """Reach and limits of hog functions."""

    fetch_allow_cidrs: CommaSeparated = Field(
        (),
        description="Internal networks that hog functions may reach (10.0.0.0/8,…). Default: no internal network.",
    )
    fetch_allow_hosts: CommaSeparated = Field(
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
    smtp_recipient_domains: CommaSeparated = Field(
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

    @field_validator("function_program_bytes")
    @classmethod
    def _within_a_process(cls, value: int, known: ValidationInfo) -> int:
        most = known.data.get("function_memory_bytes", value * 2) // 2
        if value > most:
            raise ValueError(f"must not be above {most}, half of HOGLAB_FUNCTION_MEMORY_BYTES")
        return value

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
