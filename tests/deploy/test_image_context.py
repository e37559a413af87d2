"""What the image of docs/deploy/Dockerfile is built from: enough for the package, nothing of the checkout besides."""

from __future__ import annotations

import fnmatch
import shutil
import subprocess
import sys
from pathlib import Path

from tests.house.sources import ROOT
from tests.waiting import PATIENCE_S

REPOSITORY = ROOT.parents[1]
SECRETS = (
    ".env",
    ".git/config",
    ".venv/bin/python",
    "hoglab-data/secret-keys",
    "backup/hoglab.db",
    "src.tar",
)


def patterns() -> tuple[list[str], list[str]]:
    """Return what .dockerignore lets in, and what it leaves out of that."""
    lines = (REPOSITORY / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*", "everything is left out but what is named"
    return [rule[1:] for rule in rules if rule.startswith("!")], [
        rule for rule in rules[1:] if not rule.startswith("!")
    ]


def is_let_in(path: str) -> bool:
    """Return whether a file, by its path in the checkout, is part of the context."""
    allowed, excluded = patterns()
    parts = path.split("/")
    parents = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    if any(
        fnmatch.fnmatch(f"/{parent}", f"*/{rule.removeprefix('**/')}")
        for rule in excluded
        for parent in parents
    ):
        return False
    return any(parent in allowed for parent in parents)


def test_secrets_data_and_history_stay_out() -> None:
    assert [path for path in SECRETS if is_let_in(path)] == []
    assert not is_let_in("src/hoglab/__pycache__/settings.cpython-313.pyc")
    assert is_let_in("src/hoglab/settings/server.py")


def test_a_wheel_is_built_from_what_is_let_in(tmp_path: Path) -> None:
    allowed, _ = patterns()
    for name in allowed:
        source, target = REPOSITORY / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "dist").glob("*.whl"))
