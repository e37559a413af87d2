"""The built files of the UI belong to its sources, are small enough, and are in what is published."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "ui"
STATIC = ROOT / "src/hoglab/ui/static"
GENERATED = "src/api/schema.d.ts"
STALE = "sources and built files of the web UI differ: run `make ui`"
STATEMENTS = [
    path.relative_to(ROOT / "src/hoglab").as_posix()
    for path in (ROOT / "src/hoglab/storage").glob("**/*.sql")
]
"""SQL texts that the package reads when it is imported."""

FIRST_SCREEN = 45_000
"""Bytes of JavaScript, as gzip, until the experiments or the results of one are there."""
SCREEN = 25_000
"""Bytes of each further screen's own chunk, as gzip."""
STYLES = 12_000
TOTAL = 1_000_000
"""Bytes of all built files as they are."""
PICTURE = 200_000
"""Bytes of the picture in README.md."""
BUILD_S = 300
"""How long node may take on a machine that does much else."""
SOURCE_LINES = 12_000
PACKAGES = 25


def manifest() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((STATIC / "manifest.json").read_text())
    return found


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sources() -> dict[str, str]:
    configuration = (
        *("index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts"),
        "scripts/manifest.mjs",
    )
    paths = [path for path in (SOURCE / "src").rglob("*") if path.is_file()]
    paths += [SOURCE / name for name in configuration]
    named = {path.relative_to(SOURCE).as_posix(): path for path in paths}
    return {name: digest(path) for name, path in named.items() if name != GENERATED}


def outputs() -> dict[str, str]:
    paths = (path for path in STATIC.rglob("*") if path.is_file() and path.name != "manifest.json")
    return {path.relative_to(STATIC).as_posix(): digest(path) for path in paths}


def compressed(name: str) -> int:
    return len(gzip.compress((STATIC / name).read_bytes(), mtime=0))


def chunk_of(source: str) -> str:
    return next(name for name, chunk in manifest()["chunks"].items() if chunk["source"] == source)


def reached(*names: str) -> set[str]:
    """Chunks with all that they import at once."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += manifest()["chunks"][name]["imports"]
    return found


def test_the_build_is_of_these_sources() -> None:
    assert manifest()["inputs"] == sources(), STALE


def test_the_built_files_are_those_of_the_build() -> None:
    assert manifest()["outputs"] == outputs(), STALE


@pytest.mark.parametrize("screen", ["src/experiments/List.tsx", "src/experiments/Results.tsx"])
def test_13_9_3_javascript_of_the_first_screen(screen: str) -> None:
    size = sum(map(compressed, reached(chunk_of("index.html"), chunk_of(screen))))
    assert size <= FIRST_SCREEN


def test_13_9_3_every_chunk_the_styles_and_the_total() -> None:
    first = reached(chunk_of("index.html"))
    chunks = {name: compressed(name) for name in manifest()["chunks"] if name not in first}
    assert {name: size for name, size in chunks.items() if size > SCREEN} == {}
    assert sum(compressed(name) for name in outputs() if name.endswith(".css")) <= STYLES
    assert sum((STATIC / name).stat().st_size for name in outputs()) <= TOTAL


def test_sources_and_packages_stay_few() -> None:
    texts = [path for path in (SOURCE / "src").rglob("*") if path.suffix in (".ts", ".tsx", ".css")]
    own = [path for path in texts if path != SOURCE / GENERATED]
    assert sum(len(path.read_text().splitlines()) for path in own) <= SOURCE_LINES
    packages = json.loads((SOURCE / "package-lock.json").read_text())["packages"]
    shipped = [
        name for name, each in packages.items() if name and not each.keys() & {"dev", "optional", "peer"}
    ]
    assert len(shipped) <= PACKAGES


def test_nothing_comes_from_elsewhere_and_nothing_is_inline() -> None:
    page = (STATIC / "index.html").read_text()
    assert "<script>" not in page
    assert "<style" not in page
    assert " style=" not in page
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert addresses
    assert [each for each in addresses if "//" in each] == []
    styles = "".join((STATIC / name).read_text() for name in outputs() if name.endswith(".css"))
    assert "url(" not in styles
    assert "@import" not in styles


def test_readme_has_a_picture_that_loads_quickly_and_says_how_to_log_in() -> None:
    text = (ROOT / "README.md").read_text()
    (picture,) = re.findall(r"!\[[^\]]+\]\((docs/images/[^)]+)\)", text)
    assert 0 < (ROOT / picture).stat().st_size <= PICTURE
    assert "hoglab login" in text[text.index("**Log in**") : text.index("## A tour")]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_new_build_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    """From another folder, with the packages that are installed; where npm is missing the hashes above have to do."""
    if shutil.which("npm") is None or not (SOURCE / "node_modules").is_dir():
        pytest.skip("needs npm, and `make ui` to have been run")
    ui, out = tmp_path / "ui", tmp_path / "src/hoglab/ui/static"
    shutil.copytree(SOURCE, ui, ignore=shutil.ignore_patterns("node_modules"))
    (ui / "node_modules").symlink_to(SOURCE / "node_modules")
    out.mkdir(parents=True)
    subprocess.run(
        ["npm", "run", "--silent", "build"], cwd=ui, check=True, capture_output=True, timeout=BUILD_S
    )
    made = {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    kept = {
        path.relative_to(STATIC).as_posix(): path.read_bytes() for path in STATIC.rglob("*") if path.is_file()
    }
    assert made == kept, STALE


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_types_and_rules_hold_for_the_api_as_it_is(tmp_path: Path) -> None:
    if shutil.which("npm") is None or not (SOURCE / "node_modules").is_dir():
        pytest.skip("needs npm, and `make ui` to have been run")
    ui = tmp_path / "ui"
    shutil.copytree(SOURCE, ui, ignore=shutil.ignore_patterns("node_modules", "schema.d.ts"))
    (ui / "node_modules").symlink_to(SOURCE / "node_modules")
    (tmp_path / "docs/api").mkdir(parents=True)
    shutil.copy(ROOT / "docs/api/openapi.json", tmp_path / "docs/api")
    for script in ("types", "check"):
        done = subprocess.run(
            ["npm", "run", "--silent", script], cwd=ui, capture_output=True, text=True, timeout=BUILD_S
        )
        assert done.returncode == 0, done.stdout + done.stderr


def _built(project: Path, target: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target]
    return subprocess.run(
        command, cwd=project, capture_output=True, text=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1"}
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small copy of what is published: the rooms but for this one are no matter here."""
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    package = tmp_path / "src/hoglab"
    package.mkdir(parents=True)
    shutil.copy(ROOT / "src/hoglab/__init__.py", package)
    (package / "http/swagger_ui").mkdir(parents=True)
    for path in (ROOT / "src/hoglab/http/swagger_ui").glob("*"):
        if "LICENSE" in path.name or path.name == "NOTICE":
            shutil.copy(path, package / "http/swagger_ui")
    shutil.copytree(ROOT / "src/hoglab/ui", package / "ui", ignore=shutil.ignore_patterns("__pycache__"))
    for name in STATEMENTS:
        (package / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / "src/hoglab" / name, package / name)
    return tmp_path


def test_a_wheel_and_an_sdist_have_the_files(project: Path) -> None:
    for target in ("wheel", "sdist"):
        done = _built(project, target)
        assert done.returncode == 0, done.stderr
    (wheel,) = (project / "dist").glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {f"hoglab/ui/static/{name}" for name in outputs()} <= inside
    assert STATEMENTS
    assert {f"hoglab/{name}" for name in STATEMENTS} <= inside
    (sdist,) = (project / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    for file in ("ui/static/index.html", *STATEMENTS):
        assert any(name.endswith(f"/src/hoglab/{file}") for name in names)


@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_without_the_page_nothing_is_built(project: Path, target: str) -> None:
    (project / "src/hoglab/ui/static/index.html").unlink()
    done = _built(project, target)
    assert done.returncode != 0
    assert "run `make ui`" in done.stderr + done.stdout
    assert not list((project / "dist").glob("*")) if (project / "dist").exists() else True
