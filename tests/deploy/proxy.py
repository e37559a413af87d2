"""nginx with the configuration of docs/deploy, before processes on ports of a test."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import free_port
from tests.deploy.machine import _NGINX, ROOT, needed

LISTENS_ON = "8080"


@contextmanager
def nginx(folder: Path, ports: Mapping[str, str]) -> Iterator[str]:
    """The address of the proxy during the block. ``ports``: those of the documents, with what is in their place."""
    ports = {**ports, LISTENS_ON: str(free_port())}
    (folder / "conf.d").mkdir(parents=True)
    text = (ROOT / "docs/deploy/nginx.conf").read_text()
    for port, placed in ports.items():
        text = re.sub(rf"\b{port}\b", placed, text)
    (folder / "conf.d" / "hoglab.conf").write_text(text)
    locations = folder / "hoglab-locations.conf"
    locations.write_text((ROOT / "docs/deploy/hoglab-locations.conf").read_text())
    user = "user root;" if os.getuid() == 0 else ""
    (folder / "nginx.conf").write_text(_NGINX.format(folder=folder, user=user))
    command = [needed("nginx", "nginx"), "-c", str(folder / "nginx.conf")]
    subprocess.run(command, check=True)
    try:
        yield f"http://127.0.0.1:{ports[LISTENS_ON]}"
    finally:
        subprocess.run([*command, "-s", "stop"], check=False, capture_output=True)
