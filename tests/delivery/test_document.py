"""docs/delivery.md names every limit, metric and line of the log that an operator meets."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

import hoglab.app  # noqa: F401 - so that every metric is known
from hoglab.delivery.bodies import hosted
from hoglab.delivery.bodies.child import BodyLimits
from hoglab.delivery.dispatch import restarts
from hoglab.delivery.execution import calls, loops, program_run
from hoglab.delivery.execution.retries import LASTING, POSTHOG
from hoglab.delivery.limits import backpressure as room
from hoglab.delivery.limits import destination_breaker as breaker
from hoglab.delivery.outbound import resolver, urls
from hoglab.delivery.outbound.fetch import FetchLimits
from hoglab.delivery.outbound.mail import MailLimits
from hoglab.delivery.runs import progress
from hoglab.delivery.webhooks.incoming import WebhookLimits
from hoglab.delivery.worker import WorkerLimits
from hoglab.fairness import compute_quota, compute_shares
from hoglab.fairness.fair_semaphore import MEMBER_PART
from hoglab.fairness.thresholds import OWNER_SHARE
from hoglab.functions.configuration import code
from hoglab.functions.environments import DESTINATION_LIMITS, MASKING_LIMITS
from hoglab.functions.templating import liquid, liquid_filters
from hoglab.hog.rt.context import EXPRESSION_LIMITS
from hoglab.settings import Settings
from hoglab.storage.invocations import janitor, traces

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "delivery.md").read_text()
LOGGING = ("warning", "error", "exception", "critical")


def mib(number: int) -> str:
    return f"{number / (1 << 20):g} MiB"


def seconds(number: float) -> str:
    return f"{number:g} s" if number != calls.MAX_SLEEP_S else f"{number:.0f} s"


def limits() -> dict[str, str]:
    fetch, worker, webhook, body = FetchLimits(), WorkerLimits(), WebhookLimits(), BodyLimits()
    mail = MailLimits()
    settings = Settings.model_fields
    assert settings["function_processes"].default == body.processes
    assert settings["function_memory_bytes"].default == body.memory_bytes
    assert body.crashes + 1 == janitor.MAX_RESETS
    assert hosted.MAX_CHAIN + 1 == loops.MAX_DEPTH
    assert settings["function_time_s"].default == body.time_s == DESTINATION_LIMITS.time_s
    assert settings["function_calls"].default == body.calls == DESTINATION_LIMITS.async_steps
    assert settings["function_program_bytes"].default == body.program_bytes == DESTINATION_LIMITS.memory_bytes
    assert settings["filter_time_s"].default == EXPRESSION_LIMITS.time_s
    assert MASKING_LIMITS.memory_bytes == EXPRESSION_LIMITS.memory_bytes
    assert {each.max_steps for each in (DESTINATION_LIMITS, MASKING_LIMITS)} == {EXPRESSION_LIMITS.max_steps}
    assert settings["fetch_timeout_s"].default == fetch.total_s
    assert settings["fetch_max_request_bytes"].default == fetch.max_request_bytes
    assert settings["fetch_max_response_bytes"].default == fetch.max_response_bytes
    assert settings["log_retention_days"].default == traces.TRACE_RETENTION_DAYS
    return {
        "computing time of a body, over all its turns": seconds(DESTINATION_LIMITS.time_s),
        "computing time of a filter, of inputs": seconds(EXPRESSION_LIMITS.time_s),
        "computing time of a masking key, of an order key": seconds(MASKING_LIMITS.time_s),
        "steps of any of these: rounds of loops, calls of functions": str(EXPRESSION_LIMITS.max_steps),
        "memory of the program of a body, as the language accounts for it": mib(body.program_bytes),
        "memory of a filter, of inputs, of a key": mib(EXPRESSION_LIMITS.memory_bytes),
        "address space of a process of bodies": mib(body.memory_bytes),
        "processes of bodies": str(body.processes),
        "code of a function": f"{code.MAX_CODE_BYTES // 1024} KiB",
        "nested calls of a program's own functions": str(DESTINATION_LIMITS.call_depth),
        "arguments of a call": str(DESTINATION_LIMITS.arguments),
        "calls (`fetch`, `sendEmail`, `sleep`) of a run": str(DESTINATION_LIMITS.async_steps),
        "`sleep`": seconds(calls.MAX_SLEEP_S),
        "lines that a run prints between two calls": str(DESTINATION_LIMITS.print_lines),
        "characters of a line of the log": str(program_run.MAX_MESSAGE_CHARS),
        "characters of the error that is kept with a run": str(program_run.MAX_ERROR_CHARS),
        "events that a run captures": "1",
        "captures, and requests to the own project, that lead to each other": str(loops.MAX_DEPTH),
        "characters of a Liquid template": str(liquid.MAX_TEMPLATE_CHARS),
        "computing time of a Liquid template": seconds(liquid.RENDER_TIME_S),
        "what a Liquid template prints": f"{liquid.MAX_OUTPUT_BYTES} bytes",
        "rounds of loops in a Liquid template": str(liquid.MAX_LOOP_ITERATIONS),
        "computing time of the transformations of a project for each event, while others wait": seconds(
            compute_shares.EVENT_S
        ),
        "computing time beyond that, with that of filters and inputs, at once, "
        f"without the first {seconds(compute_quota.QUICK_RUN_S)} of each filter and input": seconds(
            compute_shares.BURST_S
        ),
        "of which come back in a second": seconds(compute_shares.SHARE),
        "of which come back in a second to all projects together": seconds(compute_shares.SHARE_OF_ALL),
        "the most that a project can owe of it": seconds(compute_shares.DEBT_S),
        "items of a range in a Liquid template": str(liquid_filters.MAX_VALUE_ITEMS),
        "starts of a server at the same events before these are dispatched one by one": str(
            restarts.MOST_STARTS
        ),
        "time without progress after which deliveries stand still": seconds(progress.STILL_S),
        "time for a request, with connecting": seconds(fetch.total_s),
        "time for connecting": seconds(fetch.connect_s),
        "names that are looked up at a time": str(resolver.LOOK_UPS),
        f"names that are looked up at a time, with those that take longer than {seconds(resolver.SLOW_S)}": str(
            resolver.SLOW_LOOK_UPS
        ),
        "characters of a URL": str(urls.MAX_URL_CHARS),
        "body of a request": mib(fetch.max_request_bytes),
        "body of an answer, decompressed": mib(fetch.max_response_bytes),
        "headers of an answer": f"{fetch.max_head_bytes // 1024} KiB",
        "time for handing over an e-mail": seconds(mail.total_s),
        "time for connecting to the mail server": seconds(mail.connect_s),
        "e-mails that are handed over at a time": str(mail.at_once),
        "characters of an address of an e-mail": str(mail.address_chars),
        "characters of its subject, of a name": str(mail.subject_chars),
        "its text and HTML together": mib(mail.content_bytes),
        "time for which a request or an e-mail is tried again": seconds(LASTING.max_age_s or 0),
        "longest wait between two attempts": seconds(LASTING.max_backoff_s),
        "`Retry-After` that is waited for": seconds(LASTING.max_retry_after_s),
        "attempts with `posthog`": str(POSTHOG.max_attempts),
        "failures in a row after which a function's runs wait for a destination that is away": str(
            breaker.FAILURES
        ),
        "longest time between two probes of it": seconds(breaker.LONGEST_S),
        "invocations at work": str(worker.in_flight),
        "invocations of one function at work": str(worker.per_function),
        "requests to one host and port at a time": str(worker.per_destination),
        "requests of one function to one host and port at a time": str(worker.per_destination // MEMBER_PART),
        "requests to one host and port at a time, with those that hang": str(worker.per_destination_slow),
        "time without an answer after which a request counts as one that hangs": seconds(worker.slow_s),
        "invocations of one function that are taken at a time, alone": str(worker.claim_each),
        "the same while other functions have work": str(worker.claim_shared),
        "runs that are sent to a process of bodies together, of one function": str(body.batch),
        "the same while other functions have work, too": str(body.batch_shared),
        "invocations that are due before ingestion waits": str(room.MAX_BACKLOG),
        "of these, of one project, where others have functions": str(room.MAX_BACKLOG // room.PROJECT_PART),
        "unfinished invocations of one function": str(room.MAX_WAITING),
        "unfinished invocations of the functions of one project": str(room.MAX_WAITING_OF_PROJECT),
        "deaths of a worker or process before a run is given up": str(janitor.MAX_RESETS),
        "body of a webhook's request": f"{webhook.body} bytes",
        "webhook requests at work or waiting": str(webhook.waiting),
        "of these, of one project": str(webhook.waiting * OWNER_SHARE // (OWNER_SHARE + 1)),
        "dead letters of a function": str(traces.MAX_DEAD_LETTERS),
        "days that dead letters are kept": str(traces.DEAD_LETTER_RETENTION_DAYS),
        "days that runs are kept to be run again": str(traces.RESULT_RETENTION_DAYS),
        "days that logs and counts are kept": str(traces.TRACE_RETENTION_DAYS),
    }


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_every_limit_is_what_it_says() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.*?) ?\|$", section("Limits"), re.MULTILINE)
    assert {name: value for name, value, _ in rows if name != "Limit"} == limits()
    for _, _, setting in rows:
        for name in re.findall(r"`HOGLAB_(\w+)`", setting):
            assert name.lower() in Settings.model_fields


def test_every_metric_is_named() -> None:
    metrics = {one.name for one in REGISTRY.collect() if one.name.startswith("hoglab_delivery_")}
    assert len(metrics) > 10
    assert {name for name in metrics if name not in DOCUMENT} == set()


def log_lines(path: Path) -> set[str]:
    """The names of the lines that a module logs from warnings on."""
    return {
        node.args[0].value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LOGGING
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "_logger"
        and isinstance(node.args[0], ast.Constant)
    }


@pytest.mark.parametrize("room", ["delivery", "functions", "storage/invocations"])
def test_every_line_of_the_log_is_named(room: str) -> None:
    paths = sorted((ROOT / "src" / "hoglab" / room).rglob("*.py"))
    named = set().union(*map(log_lines, paths))
    assert named
    assert {name for name in named if f"`{name}`" not in DOCUMENT} == set()
