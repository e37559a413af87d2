"""Limits and other settings as each room takes them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hoglab.analysis.timeseries import ResultsConfig
from hoglab.capture import CaptureLimits
from hoglab.delivery.bodies.child import BodyLimits
from hoglab.delivery.config import DeliveryConfig
from hoglab.delivery.outbound import AddressGuard, FetchLimits
from hoglab.hog import EXPRESSION_LIMITS
from hoglab.http.management.config import HttpConfig
from hoglab.ingestion import IngestionLimits
from hoglab.storage.engines import EngineOptions
from hoglab.storage.table_files import TableDirectory

if TYPE_CHECKING:
    from hoglab.hog import Limits
    from hoglab.settings import Settings


def engine_options(settings: Settings) -> EngineOptions:
    """Return options of the engines in the settings."""
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


def capture_limits(settings: Settings) -> CaptureLimits:
    """Return the limits of requests with events."""
    return CaptureLimits(batch_body=settings.max_request_bytes)


def ingestion_limits(settings: Settings) -> IngestionLimits:
    """Return the limits of ingestion."""
    return IngestionLimits(linger_s=settings.ingestion_linger_s)


def expression_limits(settings: Settings) -> Limits:
    """Return the limits of one evaluation of a filter or of inputs."""
    return replace(EXPRESSION_LIMITS, time_s=settings.filter_time_s)


def delivery_config(settings: Settings, *, runs: bool) -> DeliveryConfig:
    """Return settings and limits of delivery; ``runs``: whether this process runs functions.

    Raises `InvalidAllowanceError`.
    """
    return DeliveryConfig(
        settings.public_url,
        guard=AddressGuard.create(settings.fetch_allow_cidrs, settings.fetch_allow_hosts),
        retries=settings.retries,
        bodies=BodyLimits(
            time_s=settings.function_time_s,
            calls=settings.function_calls,
            program_bytes=settings.function_program_bytes,
            processes=settings.function_processes,
            memory_bytes=settings.function_memory_bytes,
        ),
        fetch=FetchLimits(
            total_s=settings.fetch_timeout_s,
            max_request_bytes=settings.fetch_max_request_bytes,
            max_response_bytes=settings.fetch_max_response_bytes,
        ),
        mail_server=settings.mail_server,
        geoip_database=settings.geoip_database,
        runs=runs,
    )


def http_config(settings: Settings, *, late_check_blocks: bool, home: str | None) -> HttpConfig:
    """Return settings and limits of the HTTP application; see there for ``late_check_blocks`` and ``home``."""
    return HttpConfig(
        public_url=settings.site_url,
        rate_limit_enabled=settings.rate_limit_enabled,
        access_log=settings.access_log,
        max_body_bytes=settings.max_request_bytes,
        body_budget_bytes=settings.request_memory_bytes,
        answer_budget_bytes=settings.answer_memory_bytes,
        metrics_token=settings.metrics_secret,
        late_check_blocks=late_check_blocks,
        home=home,
    )


def results_config(settings: Settings) -> ResultsConfig:
    """Return limits of the results of experiments."""
    return ResultsConfig(settings.query_timeout_s, settings.results_refresh_s)
