"""The language is a library of its own: it works where nothing else of hoglab, and little of others, is installed."""

import importlib.metadata
import json
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from tests.waiting import PATIENCE_S

import hoglab.hog

PACKAGES = ("google-re2", "orjson", "tzdata")
"""What docs/hog.md says it needs."""

PROGRAM = """
import importlib, json, pkgutil, sys
from hoglab import hog

for module in pkgutil.walk_packages(hog.__path__, "hoglab.hog."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
result = hog.run(
    "let d := toDateTime('2024-07-01T12:00:00', 'Europe/Brussels') "
    "return [upper(who), who =~ '^A', jsonParse('[1]'), toString(d), sha256Hex(who)]",
    {"who": "Ada"},
)
foreign = {name.partition(".")[0] for name in sys.modules if not name.startswith("__main__")}
foreign = [name for name in foreign - sys.stdlib_module_names if not name.startswith("_sysconfigdata")]
print(json.dumps({"value": result.json, "error": str(result.error or ""), "foreign": foreign}))
"""


def install(package: str, target: Path) -> None:
    """Copies the files of an installed package."""
    for file in importlib.metadata.files(package) or ():
        if ".." not in file.parts and file.suffix != ".pyc":
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file.locate(), target / file)


def test_it_runs_alone(tmp_path: Path) -> None:
    shutil.copytree(
        Path(hoglab.hog.__file__).parent,
        tmp_path / "hoglab/hog",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    (tmp_path / "hoglab/__init__.py").touch()
    for package in PACKAGES:
        install(package, tmp_path)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROGRAM}"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["error"] == ""
    assert found["value"] == ["ADA", True, [1], "2024-07-01T12:00:00.000+02:00", sha256(b"Ada").hexdigest()]
    assert set(found["foreign"]) <= {"hoglab", "re2", "_re2", "orjson", "tzdata"}


def test_importing_it_brings_in_nothing_else_of_ours() -> None:
    program = "import sys, hoglab.hog; print(*(m for m in sys.modules if m.startswith('hoglab.')))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    ours = done.stdout.split()
    assert ours
    assert all(f"{name}.".startswith("hoglab.hog.") for name in ours)
