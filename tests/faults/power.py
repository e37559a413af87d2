"""Power cuts: a server that runs as if only what it synced lasted, and the directory that a cut would leave."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("power_cut.c")


class Power:
    """Watches a data directory. The server gets `environment`; after it was killed, `cut` takes away the rest."""

    def __init__(self, data: Path, work: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("needs a C compiler")
        library = work / "power_cut.so"
        command = [compiler, "-shared", "-fPIC", "-O2", "-w", "-o", str(library), str(SOURCE)]
        subprocess.run(command, check=True)
        self._data = data
        self._kept = work / "kept"
        self._forget()
        self.environment = {
            "LD_PRELOAD": str(library),
            "KEPT_OF": str(data),
            "KEPT_IN": str(self._kept),
        }

    def _forget(self) -> None:
        shutil.rmtree(self._kept, ignore_errors=True)
        (self._kept / "files").mkdir(parents=True)
        (self._kept / "names").mkdir()

    def cut(self) -> None:
        """Leave in the directory only what was synced."""
        left = self._kept / "left"
        left.mkdir(mode=0o700)
        for name in (self._kept / "names").iterdir():
            if name.suffix == ".draft":
                continue
            target = left / name.name.replace("+", "/")
            target.parent.mkdir(exist_ok=True)
            content = self._kept / "files" / name.read_text()
            if content.exists():
                shutil.copyfile(content, target)
            else:  # its name was synced, and it never was
                target.touch()
            target.chmod(0o600)
        shutil.rmtree(self._data)
        left.rename(self._data)
        self._forget()
        for file in self._data.rglob(
            "*"
        ):  # what is on disk now is what the next cut leaves of files not written to
            if file.is_file():
                inode = str(file.stat().st_ino)
                shutil.copyfile(file, self._kept / "files" / inode)
                name = str(file.relative_to(self._data)).replace("/", "+")
                (self._kept / "names" / name).write_text(inode)
