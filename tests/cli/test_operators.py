"""The contract with operators: start, stop, health, clear errors (every command really run)."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests import forked
from tests.conftest import StartServer, free_port
from tests.delivery.mailbox import Mailbox
from tests.waiting import PATIENCE_S

from hoglab import __version__

pytestmark = pytest.mark.slow

HOGLAB = [sys.executable, "-m", "hoglab"]
KEY = "phx_" + "a" * 40
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("HOGLAB_")}
"""Without the variables that steer tests, which a server would tell of as unknown settings."""


def hoglab(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return forked.run(*arguments, environment={**ENVIRONMENT, **environment}, timeout_s=PATIENCE_S)


def assert_one_clear_line(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("hoglab: ")
    for part in parts:
        assert part in line


def printed_by_a_function(url: str, source: str) -> str:
    """What a function prints in a test run."""
    configuration = {"type": "destination", "name": "f", "hog": source, "enabled": True}
    answer = httpx.post(
        f"{url}/api/projects/1/hog_functions/new/invocations/",
        json={
            "configuration": configuration,
            "globals": {"event": {"event": "e", "distinct_id": "d", "properties": {}}},
        },
        headers={"Authorization": f"Bearer {KEY}"},
        timeout=PATIENCE_S,
    )
    assert answer.status_code == 200, answer.text
    return str(answer.json()["logs"][0]["message"])


def test_a_free_port_is_named_in_the_addresses_that_functions_see(tmp_path: Path) -> None:
    command = [*HOGLAB, "serve", "--data", str(tmp_path / "data"), "--port", "0"]
    environment = {**os.environ, "HOGLAB_BOOTSTRAP_API_KEY": KEY}
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stderr is not None
    try:
        line = next(line for line in process.stderr if "is serving on" in line)
        url = line.split()[-1]
        assert not url.endswith(":0")
        assert printed_by_a_function(url, "print(project.url)") == f"{url}/project/1"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_server_needs_no_standard_streams(tmp_path: Path, closed: str) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    command = [*HOGLAB, "serve", "--data", str(tmp_path / "data"), "--port", url.rpartition(":")[2]]
    process = subprocess.Popen(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOGLAB_BOOTSTRAP_API_KEY": KEY},
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not is_ready(url):
            assert process.poll() is None, process.returncode
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert printed_by_a_function(url, "print('hello')") == "hello"
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/_readiness", timeout=5).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def test_first_start_prints_credentials_once_and_they_work(tmp_path: Path) -> None:
    port = free_port()
    command = [*HOGLAB, "serve", "--data", str(tmp_path / "data"), "--port", str(port)]

    def start_and_stop(check: bool) -> str:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            line = next(line for line in process.stderr if "is serving on" in line)
            assert f"http://127.0.0.1:{port}" in line
            if check:
                for path in ("/_health", "/_readiness", "/metrics"):
                    assert httpx.get(f"http://127.0.0.1:{port}{path}").status_code == 200
        finally:
            process.send_signal(signal.SIGTERM)
            printed, _ = process.communicate(timeout=PATIENCE_S)  # the contract: exits within ten seconds
        assert process.returncode == 0
        return printed

    first = start_and_stop(check=True)
    assert re.search(
        rf"^Open http://127\.0\.0\.1:{port}/ui/login#t=[\w-]{{43}}   \(once, within 15 minutes\)$",
        first,
        re.MULTILINE,
    )
    (key,) = set(re.findall(r"phx_\w+", first))
    (token,) = set(re.findall(r"phc_\w+", first))
    assert "curl" in first
    assert "from posthog import Posthog" in first
    assert start_and_stop(check=False) == ""
    found = b"".join(path.read_bytes() for path in (tmp_path / "data").iterdir() if path.is_file())
    assert key.encode() not in found
    assert token.encode() in found


def test_bootstrap_credentials_come_from_the_environment(start_server: StartServer) -> None:
    server = start_server()
    answer = httpx.get(
        f"{server.url}/api/projects/@current/", headers={"Authorization": f"Bearer {server.api_key}"}
    )
    assert answer.json()["api_token"] == server.project_token


@pytest.mark.parametrize("name", ["HOGLAB_BOOTSTRAP_API_KEY", "HOGLAB_BOOTSTRAP_PROJECT_TOKEN"])
def test_unusable_bootstrap_credentials(tmp_path: Path, name: str) -> None:
    done = hoglab("serve", "--data", str(tmp_path / "d"), "--port", str(free_port()), **{name: "short"})
    assert_one_clear_line(done)


WITHOUT_A_SERVER = (
    ("keys", "create", "--label", "x"),
    ("keys", "list"),
    ("keys", "revoke", "x"),
    ("login",),
    ("sessions", "list"),
    ("sessions", "revoke", "x"),
    ("projects", "create", "x"),
    ("projects", "list"),
    ("warehouse", "list"),
    ("secrets", "rotate"),
    ("experiment", "results", "1"),
    ("export", "events", "--to", "events.jsonl"),
    ("export", "persons", "--to", "persons.jsonl"),
)


@pytest.mark.parametrize("command", WITHOUT_A_SERVER, ids=" ".join)
def test_only_a_server_makes_a_data_directory(tmp_path: Path, command: tuple[str, ...]) -> None:
    data = tmp_path / "d"
    done = hoglab(*command, "--data", str(data))
    assert_one_clear_line(done, str(data), "--data", "HOGLAB_DATA", "hoglab serve")
    assert not data.exists()


def test_the_first_key_is_shown_by_the_next_start_when_the_first_one_failed(tmp_path: Path) -> None:
    """It was made, and then the server could not go on."""
    data = tmp_path / "d"
    data.mkdir()
    (data / "missing.mmdb").write_text("no database")
    failed = hoglab(
        "serve", "--data", str(data), "--port", "0", HOGLAB_GEOIP_DATABASE=str(data / "missing.mmdb")
    )
    assert_one_clear_line(failed)
    assert (data / "hoglab.db").exists()
    with serving(data) as (url, printed):
        (key,) = set(re.findall(r"phx_\w+", "".join(printed)))
        answer = httpx.get(f"{url}/api/projects/@current/", headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == 200
    with serving(data) as (_, printed):
        assert printed == []


@contextmanager
def serving(data: Path, **environment: str) -> Iterator[tuple[str, list[str]]]:
    """A server's address, and the lines of its standard output until it was there."""
    with (data.parent / "stdout").open("w+") as stdout:
        process = subprocess.Popen(
            [*HOGLAB, "serve", "--data", str(data), "--port", "0"],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            env={**ENVIRONMENT, **environment},
        )
        assert process.stderr is not None
        try:
            line = next(line for line in process.stderr if "http://" in line)
            stdout.seek(0)
            yield re.findall(r"http://[\d.:]+", line)[0], stdout.readlines()
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE_S)


def test_lines_of_json_from_the_first_on(tmp_path: Path) -> None:
    data = tmp_path / "d"
    with serving(data, HOGLAB_LOG_FORMAT="json") as (url, printed):
        [first] = map(json.loads, printed)
        assert (first["event"], first["url"], first["personal_api_key"][:4]) == ("first_start", url, "phx_")
    done = hoglab(
        "serve", "--data", str(data), HOGLAB_LOG_FORMAT="json", HOGLAB_PORT="many", HOGLAB_SITE_URI="x"
    )
    [line] = map(json.loads, done.stderr.splitlines())
    assert (done.returncode, line["event"], "HOGLAB_PORT" in line["reason"]) == (1, "start_failed", True)


def test_variable_that_is_no_setting(start_server: StartServer) -> None:
    busy = start_server()
    done = hoglab(
        "serve", "--data", str(busy.data), "--port", "0", HOGLAB_SITE_URI="https://x", HOGLAB_FOO="1"
    )
    told, error = done.stderr.splitlines()[:-1], done.stderr.splitlines()[-1]
    assert "in use" in error
    assert len(told) == 2
    assert "HOGLAB_FOO" in told[0]
    assert "did_you_mean" not in told[0]
    assert "HOGLAB_SITE_URI" in told[1]
    assert "did_you_mean=HOGLAB_SITE_URL" in told[1]


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("HOGLAB_SITE_URL", "flags.example.com", "http://"),
        ("HOGLAB_SITE_URL", "ftp://flags.example.com", "http://"),
        ("HOGLAB_SITE_URL", "https://flags.example.com/?a=1", "no ? or #"),
        ("HOGLAB_SDK_FILES", "/nowhere", "posthog-js"),
        ("HOGLAB_PORT", "70000", "less than or equal to 65535"),
        ("HOGLAB_EVENT_STORE_MEMORY", "lots", "KB, MB, GB"),
        ("HOGLAB_LOG_FORMAT", "xml", "'console' or 'json'"),
    ],
)
def test_errors_of_settings_name_value_rule_and_example(
    tmp_path: Path, name: str, value: str, rule: str
) -> None:
    done = hoglab("serve", "--data", str(tmp_path / "d"), **{name: value})
    assert_one_clear_line(done, name, value, rule, f"example: {name}=")
    assert not (tmp_path / "d").exists()


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield int(holder.getsockname()[1])


def test_port_taken(tmp_path: Path, taken_port: int) -> None:
    done = hoglab("serve", "--data", str(tmp_path / "d"), "--port", str(taken_port))
    assert_one_clear_line(done, str(taken_port), "taken")
    assert not (tmp_path / "d").exists()


def test_directory_locked_by_another_process(start_server: StartServer) -> None:
    server = start_server()
    done = hoglab("serve", "--data", str(server.data), "--port", str(free_port()))
    assert_one_clear_line(done, str(server.data), "in use")


def test_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = hoglab("serve", "--data", str(tmp_path / "file"), "--port", str(free_port()))
    assert_one_clear_line(done, str(tmp_path / "file"))


def test_newer_schema_than_the_program(start_server: StartServer) -> None:
    server = start_server()
    server.stop()
    with sqlite3.connect(server.data / "hoglab.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    done = hoglab("serve", "--data", str(server.data), "--port", str(free_port()))
    assert_one_clear_line(done, "newer")


def test_a_setting_that_makes_no_sense(tmp_path: Path) -> None:
    done = hoglab("serve", "--data", str(tmp_path), HOGLAB_PORT="many")
    assert_one_clear_line(done, "HOGLAB_PORT")


def test_an_address_that_is_no_mail_server(tmp_path: Path) -> None:
    done = hoglab("serve", "--data", str(tmp_path), HOGLAB_SMTP_URL="http://shop:secret@mail.example.com")
    assert_one_clear_line(done, "HOGLAB_SMTP_URL", "is not the address of a mail server", "smtps://")
    assert "secret" not in done.stderr


def test_emails_go_to_the_server_that_is_set(start_server: StartServer, mailbox: Mailbox) -> None:
    server = start_server(HOGLAB_SMTP_URL=mailbox.url)
    values = {"from": "hello@example.com", "to": "ann@example.com", "subject": "Hi", "text": "Hello"}
    body = {
        "configuration": {
            "type": "destination",
            "template_id": "template-smtp-email",
            "inputs": {key: {"value": value} for key, value in values.items()},
        },
        "globals": {"event": {"event": "a", "distinct_id": "ann"}},
        "mock_async_functions": False,
    }
    done = httpx.post(
        f"{server.url}/api/projects/1/hog_functions/new/invocations/",
        json=body,
        headers={"Authorization": f"Bearer {server.api_key}"},
    ).json()
    assert (done["status"], done["errors"]) == ("success", [])
    [mail] = mailbox.mails
    assert (mail.recipients, mail.part("plain")) == (["ann@example.com"], "Hello")


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    mailbox = Mailbox()
    yield mailbox
    mailbox.close()


def test_a_second_start_finds_everything(start_server: StartServer) -> None:
    server = start_server()
    headers = {"Authorization": f"Bearer {server.api_key}"}
    created = httpx.post(
        f"{server.url}/api/projects/1/experiments/",
        json={"name": "n", "feature_flag_key": "k"},
        headers=headers,
    ).json()
    server.stop()
    again = start_server(
        data=server.data,
        HOGLAB_BOOTSTRAP_API_KEY="phx_" + "x" * 40,
        HOGLAB_BOOTSTRAP_PROJECT_TOKEN="phc_xxxxxxxxxx",
    )
    found = httpx.get(f"{again.url}/api/projects/1/experiments/{created['id']}/", headers=headers)
    assert found.json() == created


def test_requests_under_way_are_finished_on_sigterm(start_server: StartServer) -> None:
    server = start_server()
    answers: list[int] = []
    stop = threading.Event()

    def send() -> None:
        with httpx.Client(base_url=server.url, timeout=10) as client:
            while not stop.is_set():
                try:
                    answers.append(
                        client.post(
                            "/capture/",
                            json={"api_key": server.project_token, "event": "e", "distinct_id": "d"},
                        ).status_code
                    )
                except httpx.ConnectError:
                    return
                except httpx.TransportError as error:  # an idle kept-alive connection may be closed under us
                    answers.append(0 if not isinstance(error, httpx.RemoteProtocolError) else 200)
                    return

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(answers) < 50:
        pass
    server.stop()
    stop.set()
    for thread in threads:
        thread.join(10)
    assert set(answers) == {200}


# -- keys and projects -------------------------------------------------------------------------------------------------


def test_keys_made_and_revoked_beside_a_running_server(start_server: StartServer) -> None:
    server = start_server()
    data = ("--data", str(server.data))
    done = hoglab("keys", "create", "--scopes", "experiment:read", "--project", "1", "--label", "ci", *data)
    assert done.returncode == 0
    key = done.stdout.strip()
    assert re.fullmatch(r"phx_\w{40,}", key)
    headers = {"Authorization": f"Bearer {key}"}
    url = f"{server.url}/api/projects/1/experiments/"
    assert httpx.get(url, headers=headers).status_code == 200
    assert httpx.post(url, headers=headers, json={}).status_code == 403

    listed = hoglab("keys", "list", *data, COLUMNS="80").stdout
    (line,) = [line for line in listed.splitlines() if line.endswith("ci")]
    assert key not in listed
    (key_id,) = re.findall(r"[0-9a-f-]{36}", line)
    assert hoglab("keys", "revoke", key_id, *data).returncode == 0
    deadline = threading.Event()
    for _ in range(100):
        if httpx.get(url, headers=headers).status_code == 401:
            break
        deadline.wait(0.1)
    else:
        pytest.fail("the revoked key still works")
    assert_one_clear_line(hoglab("keys", "revoke", key_id, *data), key_id)


def test_key_mistakes(start_server: StartServer) -> None:
    data = ("--data", str(start_server().data))
    assert_one_clear_line(
        hoglab("keys", "create", "--label", "x", "--scopes", "everything", *data), "everything"
    )
    done = hoglab("keys", "create", "--label", "x", "--scopes", "experimnt:read", *data)
    assert_one_clear_line(done, "experimnt:read", "Did you mean experiment:read?")
    assert_one_clear_line(hoglab("keys", "create", "--label", "x", "--project", "7", *data), "7")


def test_projects(start_server: StartServer) -> None:
    server = start_server()
    done = hoglab("projects", "create", "Shop", "--json", "--data", str(server.data))
    project = json.loads(done.stdout)
    headers = {"Authorization": f"Bearer {server.api_key}"}
    for _ in range(100):
        answer = httpx.get(f"{server.url}/api/projects/{project['id']}/", headers=headers)
        if answer.status_code == 200:
            break
        threading.Event().wait(0.1)
    assert answer.json()["api_token"] == project["api_token"]

    made = httpx.post(
        f"{server.url}/api/organizations/@current/projects/", json={"name": "Blog"}, headers=headers
    )
    assert made.status_code == 201
    assert {"id", "api_token"} <= made.json().keys()
    listed = hoglab("projects", "list", "--data", str(server.data), COLUMNS="80").stdout
    assert "Blog" in listed
    assert made.json()["api_token"] in listed


# -- the language ------------------------------------------------------------------------------------------------------


def test_hog_run(tmp_path: Path) -> None:
    program = tmp_path / "program.hog"
    program.write_text("print('hello', who)\nreturn {'n': length(who)}")
    (tmp_path / "globals.json").write_text('{"who": "Ada"}')
    done = hoglab("hog", "run", str(program), "--globals", str(tmp_path / "globals.json"))
    assert (done.returncode, done.stdout, done.stderr) == (0, 'hello Ada\n{"n": 3}\n', "")

    program.write_text("let x := 1")
    assert hoglab("hog", "run", str(program)).stdout == ""

    program.write_text("let a := 1\nthrow Error('no')")
    done = hoglab("hog", "run", str(program))
    assert (done.returncode, done.stdout) == (1, "")
    assert "Error('no')" in done.stderr
    assert "line 2" in done.stderr

    done = hoglab("hog", "run", "--json", str(program))
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert found.keys() == {"result", "printed", "error", "steps", "duration_us"}
    assert (found["error"]["message"], found["error"]["line"]) == ("Error('no')", 2)


def test_hog_check(tmp_path: Path) -> None:
    program = tmp_path / "program.hog"
    program.write_text("let x = 1")
    done = hoglab("hog", "check", str(program))
    assert done.returncode == 1
    assert f"{program}:1:7: error:" in done.stdout
    assert "hint: use `:=`" in done.stdout
    program.write_text("let x := 1\nreturn x")
    assert hoglab("hog", "check", str(program)).returncode == 0
    assert_one_clear_line(hoglab("hog", "check", str(tmp_path / "missing.hog")), "missing.hog")


def test_version_and_help() -> None:
    assert hoglab("--version").stdout == f"hoglab {__version__}\n"
    helped = hoglab("--help").stdout
    for command in ("serve", "demo", "keys", "projects", "hog"):
        assert command in helped


def test_tables_beside_the_events(start_server: StartServer, tmp_path: Path) -> None:
    """Registered on the machine itself, from the directory of the operator's choice."""
    server = start_server()
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "orders.csv").write_text("customer,at,amount\nc1,2026-01-01 10:00:00,2.5\n")
    environment = {"HOGLAB_DATA": str(server.data), "HOGLAB_WAREHOUSE": str(tables)}
    added = hoglab("warehouse", "add", "orders", "orders.csv", **environment)
    assert added.stdout.splitlines() == ["customer\tstring", "at\tdatetime", "amount\tfloat"], added.stderr
    (listed,) = json.loads(hoglab("warehouse", "list", "--json", **environment).stdout)
    assert (listed["name"], listed["format"], listed["url_pattern"]) == (
        "orders",
        "CSVWithNames",
        "orders.csv",
    )
    assert "orders.csv" in hoglab("warehouse", "list", **environment).stdout
    for arguments, part in (
        (("add", "orders", "orders.csv"), "already exists"),
        (("add", "more", "../hoglab.db", "--format", "Parquet"), "inside"),
        (("add", "more", "orders.csv", "--format", "Delta"), "neither"),
        (("add", "more", "orders.csv", "--project", "7"), "no project 7"),
        (("remove", "more"), "no table more"),
    ):
        assert_one_clear_line(hoglab("warehouse", *arguments, **environment), part)
    assert hoglab("warehouse", "remove", "orders", **environment).returncode == 0
    assert json.loads(hoglab("warehouse", "list", "--json", **environment).stdout) == []


def test_the_data_itself_is_no_table(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "data"):
        environment = {"HOGLAB_DATA": str(tmp_path / "data"), "HOGLAB_WAREHOUSE": str(place)}
        done = hoglab("warehouse", "list", **environment)
        assert_one_clear_line(done, "HOGLAB_WAREHOUSE", "must not hold the data directory")


def test_too_small_an_address_space_is_told_in_one_line(tmp_path: Path) -> None:
    command = [
        "sh",
        "-c",
        'ulimit -v 1048576; exec "$@"',
        "sh",
        *HOGLAB,
        "serve",
        "--data",
        str(tmp_path / "data"),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=ENVIRONMENT
    )
    assert_one_clear_line(done, "1024 MiB (ulimit -v)", "2048 MiB")
