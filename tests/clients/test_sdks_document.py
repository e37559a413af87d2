"""What docs/sdks.md tells people to write, word for word, with the address and the secrets of a server here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.clients.node_process import NodeProcess
from tests.clients.project import VARIANTS, Project
from tests.clients.site import MODULES, Site
from tests.clients.tab import Tab
from tests.conftest import StartServer
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.clients

DOCUMENT = (Path(__file__).parents[2] / "docs" / "sdks.md").read_text()
SECTIONS: dict[str, str] = dict(
    re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", DOCUMENT, flags=re.DOTALL | re.MULTILINE)
)
TESTED = ("Python", "Node.js", "Web pages", "npm in the browser", "posthog-js-lite", "curl")


def blocks(section: str, project: Project) -> list[str]:
    """The code of a section, for a project."""
    found = re.findall(r"```\w+\n(.*?)```", SECTIONS[section], flags=re.DOTALL)
    assert found
    secrets = {
        "http://127.0.0.1:8000": project.server.url, "phc_…": project.token, "phx_…": project.server.api_key,
    }  # fmt: skip
    for written, real in secrets.items():
        found = [block.replace(written, real) for block in found]
    return found


def run(*command: str | Path, folder: Path) -> str:
    """What a program prints; it must end well and complain of nothing."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def shop(project: Project) -> Project:
    """The project of the document's reader, who has a flag."""
    project.flag("button-colour", multivariate=VARIANTS)
    return project


def colour(project: Project, distinct_id: str) -> Any:
    return project.sdk().evaluate_flags(distinct_id).get_flag("button-colour", send_feature_flag_events=False)


def test_what_is_called_tested_is_tested_here() -> None:
    (tested,) = re.findall(r"^\| (.+) \| tested \|$", DOCUMENT, flags=re.MULTILINE)
    (untested,) = re.findall(r"^\| (.+) \| not tested here \|$", DOCUMENT, flags=re.MULTILINE)
    assert tuple(re.findall(r"\[(.+?)\]", tested)) == TESTED
    for section in TESTED:
        assert "*Tested" in SECTIONS[section]
    for section in re.findall(r"\[(.+?)\]", untested):
        assert "*Not tested here" in SECTIONS[section]


def test_python(shop: Project, tmp_path: Path) -> None:
    for block in blocks("Python", shop):
        assert run(sys.executable, "-c", block, folder=tmp_path) == f"{colour(shop, 'ann')}\n"
    assert len(shop.events(2, event="signed up")) == 2
    exposures = shop.events(3, event="$feature_flag_called")
    assert [each["properties"]["locally_evaluated"] for each in exposures].count(True) == 1


def test_node(shop: Project, node_modules: Path, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(node_modules)
    (block,) = blocks("Node.js", shop)
    (tmp_path / "app.mjs").write_text(block)
    assert run("node", "app.mjs", folder=tmp_path) == f"{colour(shop, 'ann')}\n"
    shop.events(1, event="signed up")


def test_web_pages(
    start_server: StartServer, browser: NodeProcess, site: Site, node_modules: Path, tmp_path: Path
) -> None:
    project = Project(start_server(HOGLAB_SDK_FILES=str(node_modules / "posthog-js" / "dist")))
    project.flag("button-colour", multivariate=VARIANTS)
    (block,) = blocks("Web pages", project)
    tab = open_page(browser, site, "/snippet", f"<!doctype html><title>Shop</title>\n{block}")
    assert_page_works(tab, project)
    project.close()


def test_npm_in_the_browser(shop: Project, browser: NodeProcess, site: Site) -> None:
    (block,) = blocks("npm in the browser", shop)
    tab = open_page(browser, site, "/npm-page", f'{MODULES}<script type="module">{block}</script>')
    assert_page_works(tab, shop)


def test_posthog_js_lite(shop: Project, browser: NodeProcess, site: Site) -> None:
    (block,) = blocks("posthog-js-lite", shop)
    tab = open_page(browser, site, "/lite", f'{MODULES}<script type="module">{block}</script>')
    assert_page_works(tab, shop)


def test_curl(shop: Project, tmp_path: Path) -> None:
    (block,) = blocks("curl", shop)
    taken, flags = re.findall(r"\{.*?\}(?=\{|$)", run("bash", "-euc", block, folder=tmp_path).strip())
    assert json.loads(taken) == {"status": "Ok"}
    assert json.loads(flags)["flags"]["button-colour"]["variant"] == colour(shop, "ann")
    shop.events(1, event="signed up")


@pytest.mark.files
def test_bring_the_past_along(project: Project, tmp_path: Path) -> None:
    row = {
        "event": "signed up",
        "distinct_id": "ann",
        "timestamp": "2024-05-06T07:08:09Z",
        "properties": {"n": 1},
    }
    (tmp_path / "history.jsonl").write_text(json.dumps(row) + "\n")
    there, back = blocks("Bring the past along", project)
    assert "1 events taken" in run("bash", "-euc", there, folder=tmp_path)
    (event,) = project.events(1)
    assert event["timestamp"].startswith("2024-05-06T07:08:09")
    assert (tmp_path / "rejects.jsonl").read_text() == ""
    back = back.replace("hoglab-data", str(project.server.data)).replace(
        "--project 1", f"--project {project.id}"
    )
    assert run("bash", "-euc", back, folder=tmp_path) == "events.parquet: 1 events\n"


def open_page(browser: NodeProcess, site: Site, path: str, page: str) -> Tab:
    """The page, and what it writes to the console kept as ``shown``."""
    keep = "<script>shown = []; console.log = (...words) => shown.push(words.join(' '))</script>"
    site.pages[path] = page.replace("</title>", f"</title>{keep}", 1)
    return Tab(browser, site.url + path)


def assert_page_works(tab: Tab, project: Project) -> None:
    shown = tab.wait("() => shown[0]")
    (event,) = project.events(1, event="signed up")
    assert shown == colour(project, event["distinct_id"])
    assert event["properties"]["plan"] == "pro"
    assert tab.errors() == []
