"""What every suite shares: servers started for real, and no silent skips where the whole check runs."""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import math
import os
import secrets
import shutil
import socket
from collections import deque
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from tests import clickhouse as clickhouse_servers
from tests import kafka as kafka_brokers
from tests.clickhouse import ClickHouseServer
from tests.databases import ENGINE
from tests.forked import ForkedServer
from tests.generated import ALL, SEED, use_profile
from tests.postgres import PostgresServer, running
from tests.split import BESIDE, SHAPE, SplitServer
from tests.waiting import be_patient_with_servers

from hoglab.demo.server import ChildServer
from hoglab.storage.engines import upgrade_databases

if TYPE_CHECKING:
    from structlog.typing import EventDict

pytest_plugins = ["tests.processor_time", "tests.targets", "tests.temporary_files"]
use_profile()
# Hundreds of tests poll for the events that they sent; those about lingering set it for their servers.
os.environ.setdefault("HOGLAB_INGESTION_LINGER_S", "0")
be_patient_with_servers()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give Hypothesis the seed where all examples are tried; otherwise it derives one from each test."""
    os.environ["HOGLAB_TEST_SEED"] = str(SEED)  # for the other processes of the run
    if ALL and config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(SEED)


def pytest_report_header() -> str:
    """Return the line that says which examples tests generate."""
    if not ALL:
        return "generated examples: few, the same in every run (HOGLAB_TEST_EXAMPLES=all tries all)"
    return f"generated examples: all, HOGLAB_TEST_SEED={SEED}"


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """How many processes ``-n auto`` starts: three for two processors.

    A third of their time tests wait: for servers to start, for retries, for browsers.
    """
    processors = yield
    return processors if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else math.ceil(1.5 * processors)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files with slow tests begin first: at the end, one of them would leave all processors but its own idle.

    Where all tests run on an engine that has no files, those that look at files are left out.
    """
    if ENGINE != "sqlite":
        of_files = [item for item in items if item.get_closest_marker("files")]
        config.hook.pytest_deselected(items=of_files)
        items[:] = [item for item in items if item not in of_files]
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave modules and tests out of collections of garbage, and collect less often: this took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_unconfigure() -> None:
    """Let the interpreter end as usual: libraries complain about what is never collected."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Where ``HOGLAB_TESTS_FORBID_SKIPS`` is set, a skipped test is a failed one: something is missing."""
    report = yield
    if report.skipped and os.environ.get("HOGLAB_TESTS_FORBID_SKIPS") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped where nothing may be: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def no_unseen_exceptions(request: pytest.FixtureRequest) -> Iterator[None]:
    """An exception that only the log tells of, from a thread in the background say, fails the test all the same.

    Tests of such exceptions are marked with ``logs_exceptions``.
    """
    unseen: list[str] = []

    def keep_exceptions(_logger: Any, _method: str, event: EventDict) -> EventDict:
        if "exception" in event:
            unseen.append(f"{event['event']}: {event['exception']}")
        return event

    structlog.configure(
        # To pytest's log of the test: on a stream the line could end up in what another test captures and compares.
        processors=[
            structlog.processors.format_exc_info,
            keep_exceptions,
            structlog.stdlib.render_to_log_kwargs,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    yield
    if request.node.get_closest_marker("logs_exceptions") is None:
        assert not unseen, "\n\n".join(unseen)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """For tests that measure computing time: a collection walks the heap of the whole test process meanwhile."""
    gc.disable()
    yield
    gc.enable()


PORTS_RESERVED = 200
"""Number of ports that a process of tests keeps from others, those that were given last: a server may start late."""
_reserved_ports: deque[socket.socket] = deque()


@atexit.register
def _free_ports(*, but: int = 0) -> None:
    while len(_reserved_ports) > but:
        _reserved_ports.popleft().close()


def free_port() -> int:
    """Return a port of the loopback interface that nothing listens on, and that no outgoing connection is given.

    Ports that the system chooses are also those of connections: a client that waits for a server to come back would
    now and then be connected to itself, on the server's port. No other process of tests is given the port meanwhile:
    who has a port also has its number for datagrams, which nothing else uses.
    """
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind(("127.0.0.1", port))
            reservation = socket.socket(type=socket.SOCK_DGRAM)
            try:
                reservation.bind(("127.0.0.1", port))
            except OSError:
                reservation.close()
                continue
            _reserved_ports.append(reservation)
            _free_ports(but=PORTS_RESERVED)
            return port


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """The packages of ``tests/node``, for suites that run ``node`` on them."""
    folder = Path(__file__).parent / "node" / "node_modules"
    if shutil.which("node") is None or not folder.is_dir():
        pytest.skip("needs node, and `make setup` with npm present")
    return folder


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium that playwright-core can start."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("needs Chromium")


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A PostgreSQL server, the same for all processes of the run; tests are skipped where none is installed."""
    folder = tmp_path_factory.getbasetemp()
    with running((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "postgres") as server:
        yield server


@pytest.fixture(scope="session")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    """A ClickHouse server, the same for all processes of the run; tests are skipped where there is none."""
    folder = tmp_path_factory.getbasetemp()
    note = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "clickhouse"
    with clickhouse_servers.running(note) as server:
        yield server


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Kafka broker, the same for all processes of the run; tests are skipped where none can be."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with kafka_brokers.running(shared / "kafka") as address:
        yield address


@pytest.fixture
def events_url(clickhouse: ClickHouseServer) -> Iterator[str]:
    """The address of a new database on ClickHouse, which is removed after the test."""
    url = clickhouse.database()
    yield url
    clickhouse.drop(url)


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """The address of an empty database on PostgreSQL, which is removed after the test."""
    url = postgres.database()
    yield url
    postgres.drop(url)


@pytest.fixture(scope="session")
def new_database(request: pytest.FixtureRequest) -> Iterator[Callable[[], str | None]]:
    """Gives the address of an empty database for a server; None where its directory has everything."""
    if ENGINE == "sqlite":
        yield lambda: None
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    urls: list[str] = []

    def fill(url: str) -> None:
        upgrade_databases(url)

    def make() -> str:
        urls.append(server.database(server.template("servers", fill)))
        return urls[-1]

    yield make
    for url in urls:
        server.drop(url)


StartServer = Callable[..., ChildServer]


@pytest.fixture(scope="session")
def shared_server(
    tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[], str | None]
) -> Iterator[ChildServer]:
    """One server for all tests that only need a project of their own on it."""
    data = tmp_path_factory.mktemp("shared") / "data"
    server = _new_server(data, {"HOGLAB_ACCESS_LOG": "false", **_on(new_database())})
    server.start()
    yield server
    server.close()


@pytest.fixture
def start_server(tmp_path: Path, new_database: Callable[[], str | None]) -> Iterator[StartServer]:
    """Start ``hoglab serve`` as a process of its own; every one is stopped at the end of the test.

    Servers of the same directory have the same database.
    """
    started: list[ChildServer] = []
    databases: dict[Path, dict[str, str]] = {}

    def start(*, data: Path | None = None, **environment: str) -> ChildServer:
        folder = data or tmp_path / "data"
        if folder not in databases:
            databases[folder] = _on(new_database())
        server = _new_server(folder, {"HOGLAB_ACCESS_LOG": "false", **databases[folder], **environment})
        started.append(server)
        server.start()
        return server

    yield start
    for server in started:
        server.close()


def _new_server(data: Path, environment: dict[str, str]) -> ChildServer:
    """One process, or several where ``HOGLAB_TEST_SHAPE`` says so."""
    host, port = "127.0.0.1", free_port()
    if SHAPE == "split":
        others = [free_port() for _ in BESIDE]
        return SplitServer(data=data, host=host, port=port, environment=environment, other_ports=others)
    return ForkedServer(data=data, host=host, port=port, environment=environment)


def _on(url: str | None) -> dict[str, str]:
    """The environment of a server on a database."""
    return {} if url is None else {"HOGLAB_DATABASE_URL": url}
