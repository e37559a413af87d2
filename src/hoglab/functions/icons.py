"""A small set of icons drawn here: a tile with a letter (spec: hog-functions-api 18).

Nothing is fetched from elsewhere: an id that is not in the set has no icon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

MAX_AGE_S = 86_400
"""Time for which browsers may keep an icon."""

CONTENT_TYPE = "image/svg+xml"


@dataclass(frozen=True, slots=True)
class Icon:
    """A tile. ``id`` is the host name of the service that it stands for."""

    id: str
    name: str
    letter: str
    color: str

    @property
    def url(self) -> str:
        return icon_url(self.id)

    def svg(self) -> bytes:
        """Return the picture."""
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
        Icon("mail.hoglab", "E-mail", "@", "#b91c1c"),
        Icon("transformation.hoglab", "Transformation", "T", "#0f766e"),
        Icon("browser.hoglab", "Browser", "B", "#0e7490"),
        Icon("slack.com", "Slack", "S", "#7c3aed"),
        Icon("discord.com", "Discord", "D", "#4f46e5"),
        Icon("microsoft.com", "Microsoft Teams", "M", "#1d4ed8"),
        Icon("zapier.com", "Zapier", "Z", "#c2410c"),
        Icon("make.com", "Make", "M", "#a21caf"),
        Icon("posthog.com", "PostHog", "P", "#b45309"),
        Icon("hubspot.com", "HubSpot", "H", "#ea580c"),
        Icon("salesforce.com", "Salesforce", "S", "#0284c7"),
        Icon("intercom.com", "Intercom", "I", "#2563eb"),
        Icon("zendesk.com", "Zendesk", "Z", "#14532d"),
        Icon("customer.io", "Customer.io", "C", "#ca8a04"),
        Icon("braze.com", "Braze", "B", "#7e22ce"),
        Icon("klaviyo.com", "Klaviyo", "K", "#1f2937"),
        Icon("mailchimp.com", "Mailchimp", "M", "#a16207"),
        Icon("mailjet.com", "Mailjet", "M", "#ea580c"),
        Icon("sendgrid.com", "SendGrid", "S", "#0369a1"),
        Icon("mailgun.com", "Mailgun", "M", "#be123c"),
        Icon("twilio.com", "Twilio", "T", "#e11d48"),
        Icon("airtable.com", "Airtable", "A", "#0d9488"),
        Icon("linear.app", "Linear", "L", "#4338ca"),
        Icon("github.com", "GitHub", "G", "#111827"),
        Icon("google.com", "Google", "G", "#1d4ed8"),
        Icon("aws.amazon.com", "Amazon Web Services", "A", "#c2410c"),
        Icon("meta.com", "Meta", "M", "#1e40af"),
        Icon("tiktok.com", "TikTok", "T", "#0f172a"),
        Icon("reddit.com", "Reddit", "R", "#dc2626"),
        Icon("linkedin.com", "LinkedIn", "L", "#075985"),
        Icon("mixpanel.com", "Mixpanel", "M", "#6d28d9"),
        Icon("amplitude.com", "Amplitude", "A", "#1e3a8a"),
        Icon("rudderstack.com", "RudderStack", "R", "#4c1d95"),
        Icon("stripe.com", "Stripe", "S", "#6d28d9"),
        Icon("n8n.io", "n8n", "N", "#db2777"),
    )
}


def icon_url(icon_id: str) -> str:
    """Return the URL of an icon in the API."""
    return f"/api/projects/@current/hog_functions/icon/?id={quote(icon_id)}"


def search_icons(query: str | None) -> list[Icon]:
    """Return the icons whose name or id contains the text; none for no text."""
    words = (query or "").strip().lower()
    if not words:
        return []
    return [icon for icon in ICONS.values() if words in icon.name.lower() or words in icon.id]
