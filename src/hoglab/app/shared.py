"""The services of processes of all roles: endpoints for SDKs, and delivery."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

from hoglab.accounts.service import AccountService
from hoglab.app.problems import SharedComponents, in_role, shared_problems
from hoglab.app.roles import ROLES, Capability
from hoglab.background import Service
from hoglab.capture import Capture, RefusedRequests
from hoglab.delivery.bodies.pool import BodyPool
from hoglab.delivery.limits.function_breaker import FunctionBreakers
from hoglab.delivery.service import Delivery, run_context
from hoglab.experiments.linkage import linked_experiments
from hoglab.flags.evaluation.endpoint import FlagEvaluator
from hoglab.flags.matching.preload import FlagPreload
from hoglab.flags.matching.registry import FlagRegistry
from hoglab.functions.runtime.geoip import GeoIp
from hoglab.functions.runtime.registry import FunctionRegistry
from hoglab.functions.secrets.box import SecretBox
from hoglab.functions.state_changes import StateChanges
from hoglab.http.health import Problem
from hoglab.people import PersonService
from hoglab.settings.rooms import capture_limits, delivery_config, expression_limits
from hoglab.storage.change_watch import ChangeWatch
from hoglab.storage.engines import SharedEngines

if TYPE_CHECKING:
    from hoglab.settings import Settings

T = TypeVar("T")


class SharedServices:
    """The services that every process has, and the background services of those beside the core."""

    def __init__(
        self,
        settings: Settings,
        engines: SharedEngines,
        secrets: SecretBox,
        accounts: AccountService,
        resources: ExitStack,
    ) -> None:
        """Open the services, which ``resources`` closes."""
        self.settings = settings
        self.role = ROLES[settings.role]
        self.shared_engines = engines
        self.secrets = secrets
        self.accounts = accounts

        def opened(thing: T, close: Callable[[T], object]) -> T:
            resources.callback(close, thing)
            return thing

        database = engines.database
        self.people = people = PersonService(database)
        self.refused = RefusedRequests(database, engines.now)
        self.capture = capture = opened(
            Capture(
                engines.accepting,
                accounts.project_by_token,
                accounts.project,
                has_several_projects=accounts.has_several_projects,
                limits=capture_limits(settings),
                refused=self.refused,
            ),
            Capture.close,
        )
        self.geoip = geoip = (
            None if settings.geoip_database is None else opened(GeoIp(settings.geoip_database), GeoIp.close)
        )
        self.functions = functions = FunctionRegistry(
            database,
            secrets,
            geoip=None if geoip is None else geoip.city,
            limits=expression_limits(settings),
        )
        now = engines.now
        config = delivery_config(settings, runs=Capability.RUNS in self.role.capabilities)
        bodies = opened(BodyPool(config.bodies), BodyPool.close)
        self.delivery = Delivery(
            engines.invocations,
            run_context(functions, secrets, people, engines.invocations, config, now),
            FunctionBreakers(engines.invocations.breakers, StateChanges(database), now),
            bodies,
            capture.accept_own,
            config,
        )
        self.evaluator = opened(
            FlagEvaluator(
                database,
                FlagRegistry(database, experiments=linked_experiments),
                accounts.project_by_token,
                people.known,
                None if geoip is None else geoip.place,
            ),
            FlagEvaluator.close,
        )
        self.components = SharedComponents(engines, functions, self.delivery, self.evaluator.registry)
        self.preload = FlagPreload(database, self.evaluator.registry, accounts.projects)

    def background(self) -> list[Service]:
        """Return the background services, in the order of starting."""
        services: list[Service] = [ChangeWatch(self.shared_engines.database)]
        if Capability.SDK in self.role.capabilities:
            services += [self.accounts.usage, self.refused, self.preload]
        return [*services, *self.delivery.watches(), self.delivery]

    def problems(self) -> list[Problem]:
        """Return problems now."""
        problems = shared_problems(self.components)
        if Capability.SDK in self.role.capabilities and not self.preload.is_done:
            problems.append(Problem("flags", "are not loaded yet"))
        return in_role(problems, self.role)
