"""What README.md tells people to type, word for word."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.conftest import StartServer

from hoglab.settings import Settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def tour() -> str:
    """The tour's commands."""
    (block,) = re.findall(
        r"<!-- tour: begin -->\n```sh\n(.*?)```\n<!-- tour: end -->", README, flags=re.DOTALL
    )
    return str(block)


@pytest.mark.timeout(180)
def test_the_tour(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    port = server.url.rpartition(":")[2]
    assert "http://127.0.0.1:8000" in tour()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", tour().replace(":8000", f":{port}")],
        cwd=ROOT,
        env={**os.environ, "HOGLAB_DATA": str(server.data)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    experiment, function, events, results, logs = (line for line in done.stdout.splitlines() if line.strip())
    assert '"feature_flag_key":"button-colour"' in experiment
    assert '"status":"running"' in experiment
    assert '"bytecode":["_H",1,' in function
    assert '"event":"signed up"' in events
    assert '"plan":"pro"' in events
    assert '"number_of_samples"' in results
    assert '"credible_interval":[' in results
    assert '"message":"user-' in logs
    assert "error" not in done.stderr.lower()


def test_every_setting_is_in_the_table() -> None:
    documented = set(re.findall(r"HOGLAB_[A-Z_]+", README))
    assert documented == {f"HOGLAB_{name.upper()}" for name in Settings.model_fields}


def test_links_lead_somewhere() -> None:
    for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            if not target.startswith("http"):
                assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set()
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        named |= set(re.findall(r"`?\bmake ([a-z-]+)\b`?", document.read_text()))
    assert {"run", "test"} <= named <= targets
