"""The HTTP side of a server: all of its routes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hoglab import __version__
from hoglab.accounts import routes as account_routes
from hoglab.accounts.sessions import routes as session_routes
from hoglab.actions.routes import actions_router
from hoglab.actions.service import ActionService
from hoglab.analysis.api import routes as results_routes
from hoglab.analysis.definitions.account_filters import check_account_filters
from hoglab.analysis.definitions.flag_properties import flag_property_seen
from hoglab.analysis.execution.behaviour import performers_on_request
from hoglab.app.dependents import action_dependents
from hoglab.app.roles import Capability
from hoglab.capture import capture_routes
from hoglab.capture.reference import capture_paths
from hoglab.delivery.api import routes as delivery_routes
from hoglab.delivery.api.backfill_routes import backfill_router
from hoglab.delivery.api.dead_letter_routes import dead_letter_router
from hoglab.delivery.api.run_routes import run_router
from hoglab.delivery.api.sample_routes import sample_router
from hoglab.delivery.webhooks.reference import webhook_paths
from hoglab.delivery.webhooks.routes import webhook_routes
from hoglab.experiments.api.reading import ExperimentReads
from hoglab.experiments.api.routes import experiments_router, holdouts_router, saved_metrics_router
from hoglab.experiments.eligible import eligible_flags
from hoglab.experiments.exposed import ExposureCohorts
from hoglab.experiments.extras import ExperimentExtras
from hoglab.experiments.holdouts import HoldoutService
from hoglab.experiments.lifecycle import Lifecycle
from hoglab.experiments.project_config import project_config_router
from hoglab.experiments.saved_metrics import SavedMetricService
from hoglab.flags.api import routes as flag_routes
from hoglab.flags.api.reference import flag_paths
from hoglab.flags.api.views import FlagViews
from hoglab.flags.evaluation.sdk_routes import hot_routes, sdk_routes
from hoglab.functions.api import routes as function_routes
from hoglab.functions.api import template_routes
from hoglab.functions.site.functions import SiteFunctions
from hoglab.http.app import HoglabApp, Routes, build_app
from hoglab.http.fields.dates import utc_now
from hoglab.http.management.config import Surroundings
from hoglab.http.management.idempotency import Idempotency
from hoglab.http.streams import Streams
from hoglab.http.system_status import system_status_router
from hoglab.ingestion.quarantine_routes import quarantine_router
from hoglab.ingestion.routes import events_router
from hoglab.ingestion.warnings import warnings_router
from hoglab.people import routes as people_routes
from hoglab.people.cohorts import person_test
from hoglab.people.cohorts.routes import cohorts_router
from hoglab.settings.rooms import http_config
from hoglab.ui.assets import Assets
from hoglab.ui.routes import ui_routes
from hoglab.warehouse.routes import warehouse_router
from hoglab.warehouse.service import WarehouseService

if TYPE_CHECKING:
    from starlette.routing import BaseRoute, Route
    from starlette.types import ASGIApp

    from hoglab.app.services import Services
    from hoglab.app.shared import SharedServices
    from hoglab.http.management.routing import ResourceRouter
    from hoglab.settings import Settings


_SDK_PATHS = {**capture_paths(), **flag_paths(), **webhook_paths()}
"""Paths for SDKs in the OpenAPI document."""


def web(services: Services) -> HoglabApp:
    """Return the application of some services; close it. Raises `AssetError`."""
    settings, accounts, database = services.settings, services.accounts, services.engines.database
    home = f"{settings.path_prefix}/ui/" if settings.ui else None
    return build_app(
        Routes(
            _routers(services),
            _hot_routes(services),
            _sdk_routes(services),
            [
                *_ui_routes(settings),
                *webhook_routes(services.delivery.webhooks),
                *template_routes.public_routes(database),
            ],
            {**_SDK_PATHS, **template_routes.public_paths()},
        ),
        accounts,
        http_config(settings, late_check_blocks=_late_check_blocks(services), home=home),
        Surroundings(
            services.streams,
            services.ingestion_view.lag_s,
            # A proxy hands each request of somebody to another process, and they expect to read what they wrote.
            None if services.engines.leased is None else database.refresh_changes,
            utc_now,
        ),
        checks=services.problems,
        sessions=services.sessions,
        idempotency=Idempotency(database, services.secrets),
    )


def _routers(services: Services) -> list[ResourceRouter]:
    accounts, sessions = services.accounts, services.sessions
    database, store = services.engines.database, services.engines.store
    delivery, streams = services.delivery, services.streams
    return [
        *account_routes.routers(accounts, database, partial(check_account_filters, database, store.dialect)),
        *session_routes.routers(sessions, accounts),
        system_status_router(services.status.look),
        *_experiment_routers(services),
        *results_routes.routers(services.results, store),
        actions_router(ActionService(database, dependents=action_dependents)),
        warehouse_router(WarehouseService(database, services.engines.tables)),
        flag_routes.router(database, services.flags, services.evaluator),
        template_routes.router(database),
        function_routes.router(services.function_service),
        dead_letter_router(delivery),
        backfill_router(services.backfills, database),
        sample_router(delivery, services.function_service, database, store, services.catch_up),
        run_router(delivery, database),
        delivery_routes.router(delivery, services.function_service, database, streams),
        events_router(store, database, streams, newest=services.ingestion_view.newest_place),
        warnings_router(database),
        quarantine_router(services.quarantine),
        people_routes.persons_router(database, services.erasing, person_test),
        people_routes.groups_router(database),
        cohorts_router(database, services.cohorts, services.calculator.progress),
    ]


def web_joining(services: SharedServices) -> HoglabApp:
    """Return the application of a process beside the core: probes, and what SDKs ask where that is its part.

    Close it.
    """
    answers_sdks = Capability.SDK in services.role.capabilities
    routes = Routes()
    if answers_sdks:
        routes = Routes(
            (),
            _hot_routes(services),
            _sdk_routes(services),
            webhook_routes(services.delivery.webhooks),
            _SDK_PATHS,
        )
    return build_app(
        routes,
        services.accounts,
        http_config(services.settings, late_check_blocks=_late_check_blocks(services), home=None),
        Surroundings(Streams(), lambda: 0.0, None, utc_now),
        checks=services.problems,
        sessions=None,
        idempotency=None,
    )


def _late_check_blocks(services: SharedServices) -> bool:
    """Return whether a process is not ready while its checks do not end: they wait for the database."""
    blocking = services.role.blocking
    return blocking is None or "database" in blocking


def _hot_routes(services: SharedServices) -> dict[str, ASGIApp]:
    return {**capture_routes(services.capture), **hot_routes(services.evaluator, services.accounts)}


def _sdk_routes(services: SharedServices) -> list[BaseRoute]:
    site_apps = SiteFunctions(services.shared_engines.database)
    return sdk_routes(services.evaluator, sdk_files=services.settings.sdk_files, site_apps=site_apps)


def _ui_routes(settings: Settings) -> list[Route]:
    """Return the web UI; nothing where it is switched off. Raises `AssetError`."""
    if not settings.ui:
        return []
    return ui_routes(Assets.load(prefix=settings.path_prefix, version=__version__), settings.path_prefix)


def _experiment_routers(services: Services) -> list[ResourceRouter]:
    experiments, accounts = services.experiments, services.accounts
    store, evaluator = services.engines.store, services.evaluator
    views = FlagViews(experiments.database, services.flags)
    return [
        experiments_router(
            experiments,
            ExperimentReads(experiments.database),
            Lifecycle(
                experiments, performers_on_request(experiments.database, store, catch_up=services.catch_up)
            ),
            ExperimentExtras(experiments, flag_property_seen=flag_property_seen(store)),
            ExposureCohorts(experiments),
            project_by_id=accounts.project,
            eligible_flags=lambda call: eligible_flags(call, evaluator.registry, views),
        ),
        project_config_router(accounts),
        holdouts_router(HoldoutService(experiments)),
        saved_metrics_router(SavedMetricService(experiments)),
    ]
