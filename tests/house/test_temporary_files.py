"""Temporary files of a run are in memory only where there is room for them and nobody says otherwise."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from tests import temporary_files
from tests.temporary_files import room_bytes  # before the fixture replaces it


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Take ``tmp_path`` for the memory, with room, in an environment that names no folder."""
    monkeypatch.setenv("TMPDIR", "")  # for the end of the test, which sets back what was noted
    monkeypatch.delenv("TMPDIR")
    monkeypatch.setattr(tempfile, "tempdir", tempfile.gettempdir())
    monkeypatch.setattr(temporary_files, "MEMORY", tmp_path)
    monkeypatch.setattr(temporary_files, "room_bytes", lambda: temporary_files.ROOM_BYTES)


def test_files_are_in_memory_where_there_is_room(tmp_path: Path) -> None:
    temporary_files.use_memory()
    assert os.environ["TMPDIR"] == str(tmp_path)
    assert tempfile.gettempdir() == str(tmp_path)


def test_files_are_on_the_disk_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary_files, "room_bytes", lambda: temporary_files.ROOM_BYTES - 1)
    temporary_files.use_memory()
    assert "TMPDIR" not in os.environ


def test_the_variable_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    temporary_files.use_memory()
    assert os.environ["TMPDIR"] == "/elsewhere"


@pytest.mark.parametrize(("target", "in_memory"), [("test", True), ("faults", False)])
def test_faults_keep_to_the_disk(pytestconfig: pytest.Config, target: str, in_memory: bool) -> None:
    given = pytestconfig.option.target
    pytestconfig.option.target = target
    try:
        temporary_files.pytest_configure(pytestconfig)
    finally:
        pytestconfig.option.target = given
    assert ("TMPDIR" in os.environ) is in_memory


def test_room_is_what_fits_and_what_the_machine_has(tmp_path: Path) -> None:
    assert 0 < room_bytes(tmp_path) <= shutil.disk_usage(tmp_path).free
    assert room_bytes(tmp_path / "missing") == 0
