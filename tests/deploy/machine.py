"""A machine as docs/operate.md and docs/cluster.md see one: their commands as they are, below a folder, on free ports.

Paths such as ``/etc/hoglab``, ports and the address of the database are put in the place of those of the documents.
PostgreSQL and nginx are real; ``systemctl`` runs units as plain processes.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.conftest import free_port
from tests.postgres import _programs
from tests.storage.own_postgres import OwnServer, own_server

ROOT = Path(__file__).parents[2]
DOCUMENTS = (ROOT / "docs" / "operate.md", ROOT / "docs" / "cluster.md")
PORTS = ("8000", "8001", "8002", "8011", "8012", "8013", "8080")
_FOLDERS = ("/etc/hoglab", "/etc/nginx", "/etc/systemd/system", "/var/lib/hoglab", "/mnt/backups")
_NGINX = """
{user}
pid {folder}/nginx.pid;
error_log {folder}/error.log;
worker_processes 1;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include conf.d/*.conf;
}}
"""


def told() -> str:
    """What documents tell operators."""
    return "".join(document.read_text() for document in DOCUMENTS)


def block(name: str) -> str:
    """The commands of one of the blocks of the documents that are marked with a name."""
    (found,) = re.findall(
        rf"<!-- {name}: begin -->\n```sh\n(.*?)```\n<!-- {name}: end -->",
        told(),
        flags=re.DOTALL,
    )
    return str(found)


def needed(program: str, package: str) -> str:
    """The path of a program; without it the test is skipped."""
    found = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"needs {program}: apt install {package}")
    return found


def docker_compose() -> list[str]:
    """The command of Docker Compose: the plugin, or the program that was before it."""
    if (docker := shutil.which("docker")) is not None:
        plugin = [docker, "compose"]
        if subprocess.run([*plugin, "version"], capture_output=True, check=False).returncode == 0:
            return plugin
    return [needed("docker-compose", "docker-compose")]


class Machine:
    """A folder in the place of the root of a machine, a PostgreSQL server, and an nginx that runs."""

    def __init__(self, folder: Path, postgres: OwnServer) -> None:
        self.folder = folder
        self.postgres = postgres
        self.database = Path(postgres.url.partition("host=")[2])  # the folder of its socket
        self.ports = {port: str(free_port()) for port in PORTS}
        self.proxy = f"http://127.0.0.1:{self.ports['8080']}"
        for path in (*_FOLDERS[1:], "/etc/nginx/conf.d", "/bin"):
            (folder / path[1:]).mkdir(parents=True)
        shutil.copytree(ROOT / "docs" / "deploy", folder / "docs" / "deploy")
        for path in (folder / "docs" / "deploy").rglob("*"):
            if path.is_file():
                path.write_text(self.placed(path.read_text()))
        self._program("systemctl", f'exec "{sys.executable}" -m tests.deploy.systemctl "$@"')
        nginx = self.folder / "etc" / "nginx"
        user = "user root;" if os.getuid() == 0 else ""
        (nginx / "nginx.conf").write_text(_NGINX.format(folder=nginx, user=user))
        command = [needed("nginx", "nginx"), "-c", str(nginx / "nginx.conf")]
        self._program("nginx", f'exec {" ".join(command)} "$@"')
        subprocess.run(command, check=True)

    def _program(self, name: str, line: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def placed(self, text: str) -> str:
        """A text of the documents with this machine's paths, ports, programs and database."""
        for path in _FOLDERS:
            text = text.replace(path, str(self.folder / path[1:]))
        for port, free in self.ports.items():
            text = re.sub(rf"\b{port}\b", free, text)
        text = text.replace("/opt/hoglab/bin", str(Path(sys.executable).parent))
        text = text.replace("db.example.com/hoglab?sslmode=verify-full", f"/hoglab?host={self.database}")
        user, group = getpass.getuser(), os.getgid()  # who runs the units here
        return text.replace("chown -R hoglab:", f"chown -R {user}:").replace("chgrp hoglab", f"chgrp {group}")

    @property
    def environment(self) -> dict[str, str]:
        """That of whoever types the commands: an administrator of the machine and of PostgreSQL."""
        programs = _programs()
        known = {name: value for name, value in os.environ.items() if not name.startswith(("HOGLAB_", "PG"))}
        return known | {
            "PATH": f"{self.folder / 'bin'}:{programs}:{os.environ['PATH']}:/usr/sbin:/sbin",
            "PYTHONPATH": str(ROOT),
            "UNITS": str(self.folder / "etc/systemd/system"),
            "PGHOST": str(self.database),
            "PGUSER": "postgres",
        }

    def run(self, commands: str, **more: str) -> str:
        """What commands of the documents print; ``more``: of the environment."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.placed(commands)],
            cwd=self.folder,
            env=self.environment | more,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr + self.logs()
        return done.stdout

    def logs(self) -> str:
        """The last words of all units and of nginx."""
        files = [*(self.folder / "etc/systemd/system").glob("*.log"), self.folder / "etc/nginx/error.log"]
        return "".join(f"\n== {file.name}\n{file.read_text()[-2_000:]}" for file in files if file.exists())

    def close(self) -> None:
        """End nginx and all units."""
        units = [file.stem for file in (self.folder / "etc/systemd/system").glob("*.pid")]
        for command in (["systemctl", "stop", *units], ["nginx", "-s", "stop"]):
            subprocess.run(
                [str(self.folder / "bin" / command[0]), *command[1:]],
                env=self.environment, cwd=ROOT, check=False, capture_output=True,
            )  # fmt: skip


@contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    """A machine during the block."""
    with own_server() as server:
        made = Machine(folder, server)
        try:
            yield made
        finally:
            made.close()
