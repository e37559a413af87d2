"""Settings of the site: its addresses, its log lines and its UI."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, HttpUrl, TypeAdapter, ValidationError, field_validator
from pydantic_settings import BaseSettings


class SiteSettings(BaseSettings):
    """Addresses of a server, and the output of its process."""

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

    @property
    def public_url(self) -> str:
        """The address that links outside of requests start with, without a slash at the end."""
        return (self.site_url or f"http://{self.host}:{self.port}").rstrip("/")

    @property
    def path_prefix(self) -> str:
        """The path under which people reach this server, without a slash at the end: usually nothing."""
        return (HttpUrl(self.site_url).path or "").rstrip("/") if self.site_url else ""
