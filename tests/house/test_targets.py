"""Every test belongs to one target of the Makefile, and the full check runs all of them."""

from __future__ import annotations

import re

import pytest
from tests import targets
from tests.house.sources import ROOT

REPOSITORY = ROOT.parents[1]


def test_named_files_exist() -> None:
    assert [name for name in targets.FILES if not (targets.ROOT / name).exists()] == []


def test_the_makefile_has_a_command_for_each_target() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    assert set(re.findall(r"--target (\w+)", makefile)) == targets.TARGETS


def test_the_full_check_makes_each_target() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    commands = set(re.findall(r"^(test[a-z-]*):", makefile, re.MULTILINE)) - {"test-openapi"}  # a soak
    check = re.search(r"for line in (.*); do", (REPOSITORY / ".ci" / "run").read_text())
    assert check is not None
    assert commands <= set(check[1].replace('"', "").split())


@pytest.mark.parametrize(
    ("place", "target"),
    [
        ("ui/test_list.py", "browsers"),
        ("backup/test_backup.py", "faults"),
        ("backup/test_document.py", "processes"),
        ("deploy/test_helm.py", "processes"),
        ("flags/test_api.py", None),
    ],
)
def test_the_most_particular_entry_counts(place: str, target: str | None) -> None:
    assert targets.file_target(targets.ROOT / place) == target


pytest_plugins = ["pytester"]


def test_tests_that_need_a_server_are_of_the_engines(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile("""
        import pytest

        @pytest.fixture
        def postgres(): ...

        @pytest.fixture
        def indirect(postgres): ...

        @pytest.fixture(params=["sqlite", "postgres"])
        def engine(request): ...

        def test_plain(): ...
        def test_own(postgres): ...
        def test_by_another(indirect): ...
        def test_each(engine): ...
    """)
    items, _ = pytester.inline_genitems(path)
    assert {item.name: targets.item_target(item) for item in items} == {
        "test_plain": "test",
        "test_own": "engines",
        "test_by_another": "engines",
        "test_each[sqlite]": "test",
        "test_each[postgres]": "engines",
    }
