"""The unmodified posthog-go against a running server."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest
from tests.clients.project import Project, everyone
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.clients

SOURCE = Path(__file__).with_name("go")
PAYLOADS = [
    '{"a": 1, "b": [true]}',
    "[1, 2]",
    '"text"',
    "5",
    "0.5",
    "true",
    "false",
    "null",
    '"{\\"a\\": 1}"',
]
"""A payload of each kind of JSON."""


@pytest.fixture(scope="session")
def go_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built program of ``tests/clients/go``; tests are skipped without Go or without its module."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("needs Go")
    fetched = subprocess.run(
        [go, "mod", "download", "github.com/posthog/posthog-go"],
        cwd=SOURCE, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    if fetched.returncode != 0:
        pytest.skip(f"needs the Go module posthog-go: {fetched.stderr}")
    program = tmp_path_factory.mktemp("go") / "client"
    built = subprocess.run(
        [go, "build", "-o", program, "."],
        cwd=SOURCE, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return program


def test_remote_configuration_is_its_stored_text(project: Project, go_client: Path) -> None:
    keys = [f"setting-{number}" for number in range(len(PAYLOADS))]
    for key, payload in zip(keys, PAYLOADS, strict=True):
        project.post(
            "/feature_flags/",
            {
                "key": key,
                "is_remote_configuration": True,
                "has_encrypted_payloads": key == keys[0],
                "filters": {"groups": everyone(), "payloads": {"true": payload}},
            },
        )
    secret_key = httpx.patch(
        f"{project.server.url}/api/projects/{project.id}/rotate_secret_token/",
        headers={"Authorization": f"Bearer {project.server.api_key}"},
    ).json()["secret_api_token"]
    done = subprocess.run(
        [go_client, project.server.url, project.token, secret_key, *keys],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == PAYLOADS
