"""A small set of icons drawn here: a tile with a letter (spec: hog-functions-api 18).

Nothing is fetched from elsewhere: an id that the set does not hold has no icon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

MAX_AGE_S = 86_400
"""How long browsers may keep an icon."""

CONTENT_TYPE = "image/svg+xml"


@dataclass(frozen=True, slots=True)
class Icon:
    """A tile: ``id`` is the host name of what it stands for."""

    id: str
    name: str
    letter: str
    color: str

    @property
    def url(self) -> str:
        return icon_url(self.id)

    def svg(self) -> bytes:
        """The picture."""
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64" width="64" height="64">'
            f'<rect width="64" height="64" rx="14" fill="{self.color}"/>'
            '<text x="32" y="33" fill="#fff" font-family="sans-serif" font-size="34" font-weight="700" '
            f'text-anchor="middle" dominant-baseline="central">{self.letter}</text></svg>'
        ).encode()


ICONS: Mapping[str, Icon] = {
    icon.id: icon
    for icon in (
        Icon("webhook.hoglab", "Webhook", "W", "#4b5563"),
        Icon("transformation.hoglab", "Transformation", "T", "#0f766e"),
        Icon("slack.com", "Slack", "S", "#7c3aed"),
        Icon("discord.com", "Discord", "D", "#4f46e5"),
        Icon("microsoft.com", "Microsoft Teams", "M", "#1d4ed8"),
        Icon("zapier.com", "Zapier", "Z", "#c2410c"),
        Icon("make.com", "Make", "M", "#a21caf"),
        Icon("posthog.com", "PostHog", "P", "#b45309"),
    )
}


def icon_url(icon_id: str) -> str:
    """Where the API serves an icon."""
    return f"/api/projects/@current/hog_functions/icon/?id={quote(icon_id)}"


def search_icons(query: str | None) -> list[Icon]:
    """The icons whose name or id contains the text; none for no text."""
    words = (query or "").strip().lower()
    if not words:
        return []
    return [icon for icon in ICONS.values() if words in icon.name.lower() or words in icon.id]
