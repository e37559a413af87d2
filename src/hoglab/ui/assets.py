"""The built files of the UI, read once at start and compressed then."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

import brotli

from hoglab.patterns import anchored

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

INDEX = "index.html"
BASE = '<base href="/ui/" />'
"""Text in the built page that is replaced by the path of the server."""
VERSION = '<meta name="hoglab" content="development" />'
"""Text in the built page that is replaced by the server's version."""
LEAST_COMPRESSED = 512
"""Minimum size of a compressed file in bytes; smaller files are sent as they are."""
BROTLI_QUALITY = 8
"""Brotli quality.

The best, 11, saves 6 % of the bytes and takes thirteen times as long, a fifteenth of the server's start.
"""
_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
}
_HASHED = anchored(r"assets/[A-Za-z0-9_.-]+-[A-Za-z0-9_-]{8}\.[a-z0-9]+")


class AssetError(Exception):
    """The built files cannot be served; the text is one line for the operator."""


@dataclass(frozen=True, slots=True)
class Asset:
    """One file in the forms that browsers take."""

    media_type: str
    tag: str
    """The entity tag, in its quotation marks."""
    bodies: Mapping[str, bytes]
    """The file by content coding, the smallest first; ``identity`` is always there, and last."""

    @classmethod
    def of(cls, name: str, body: bytes) -> Asset:
        """Return a compressed file. Raises `AssetError` for a kind of file that is not served."""
        media_type = _TYPES.get(name.rpartition(".")[2])
        if media_type is None:
            raise AssetError(f"the web UI has a file of an unknown kind: {name}")
        forms: dict[str, bytes] = {}
        if len(body) >= LEAST_COMPRESSED:
            forms["br"] = brotli.compress(body, quality=BROTLI_QUALITY)
            forms["gzip"] = gzip.compress(body, mtime=0)
        forms = {coding: form for coding, form in forms.items() if len(form) < len(body)}
        return cls(media_type, f'"{hashlib.sha256(body).hexdigest()[:32]}"', {**forms, "identity": body})


@dataclass(frozen=True, slots=True)
class Assets:
    """Everything that is served below ``/ui/``."""

    index: Asset
    """The page of every screen."""
    files: Mapping[str, Asset]
    """Files by path; their names hold a hash of their content, so they never change."""

    @classmethod
    def load(cls, *, prefix: str, version: str) -> Assets:
        """Read the files of the package.

        ``prefix`` is the path under which the server is reached, or empty. Raises `AssetError` when they are
        missing or of another version.
        """
        root = files("hoglab.ui").joinpath("static")
        try:
            page = root.joinpath(INDEX).read_text(encoding="utf-8")
        except OSError:
            raise AssetError(
                "the files of the web UI are missing from this installation; HOGLAB_UI=false does without them"
            ) from None
        if page.count(BASE) != 1 or page.count(VERSION) != 1:
            raise AssetError("the web UI's index.html is not as `make ui` makes it")
        page = page.replace(BASE, f'<base href="{escape(prefix)}/ui/" />')
        page = page.replace(VERSION, f'<meta name="hoglab" content="{escape(version)}" />')
        by_name = {f"assets/{file.name}": file for file in _files(root.joinpath("assets"))}
        if odd := [name for name in by_name if not _HASHED.fullmatch(name)]:
            raise AssetError(f"the web UI has a file without a hash in its name: {odd[0]}")
        return cls(
            Asset.of(INDEX, page.encode()),
            {name: Asset.of(name, file.read_bytes()) for name, file in by_name.items()},
        )


def _files(folder: Traversable) -> list[Traversable]:
    return sorted((file for file in folder.iterdir() if file.is_file()), key=lambda file: file.name)
