"""Channel that brought a session: search, social media, an advertisement, nothing at all (``$channel_type``).

The rules are PostHog's (https://posthog.com/docs/data/channel-type), which began as those of Google Analytics 4: an
advertisement is recognised by its medium or by a click id, and its channel by the first of source, campaign, medium
and referring domain that is known. The well-known sites below are hoglab's own list, shorter than PostHog's: a site
that is not in it is a ``Referral``, or ``Paid Unknown`` when it was paid for. So are apps that refer by the name of
their package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hoglab.filters.sql import Parameters
from hoglab.patterns import escape
from hoglab.storage.event_store.dialects import Dialect

PARTS = (
    *("$entry_utm_campaign", "$entry_utm_medium", "$entry_utm_source", "$entry_referring_domain"),
    *("$entry_gclid", "$entry_gad_source", "$entry_fbclid"),
)
"""The properties of a session that decide its channel."""


@dataclass(frozen=True, slots=True)
class _Channel:
    """Channels of a source or a medium. ``worldwide`` names have sites in many countries, ``brands`` at ``.com``."""

    organic: str
    paid: str | None = None
    mediums: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    worldwide: tuple[str, ...] = ()
    brands: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()

    def medium_pattern(self) -> str | None:
        return f"^(?:{_either(self.mediums)})$" if self.mediums else None

    def source_pattern(self) -> str | None:
        """Return a pattern of sites with their subdomains, and of names alone, as campaigns write them."""
        names = (*self.sources, *self.worldwide, *self.brands)
        places = [_either(self.sites)] if self.sites else []
        places += [rf"(?:{_either(self.brands)})\.com"] if self.brands else []
        places += [rf"(?:{_either(self.worldwide)})\.(?:com?\.)?[a-z]{{2,3}}"] if self.worldwide else []
        some = [rf"(?:.*\.)?(?:{'|'.join(places)})"] if places else []
        some += [_either(names)] if names else []
        return f"^(?:{'|'.join(some)})$" if some else None


def _either(words: tuple[str, ...]) -> str:
    return "|".join(map(escape, words))


_EMAIL = ("email", "e-mail", "e_mail", "e mail")
_CHANNELS = (  # of sites within other sites the channel comes first
    _Channel(
        "Email",
        mediums=_EMAIL,
        sources=(*_EMAIL, "gmail"),
        brands=("hotmail",),
        sites=(
            *("mail.google.com", "mail.yahoo.com", "mail.aol.com", "outlook.live.com", "outlook.office.com"),
            *("mail.proton.me", "mail.zoho.com"),
        ),
    ),
    _Channel(
        "Organic Shopping",
        "Paid Shopping",
        worldwide=("amazon", "ebay"),
        brands=(
            *("alibaba", "aliexpress", "etsy", "goat", "jumia", "shein", "shopify", "temu", "trendyol"),
            *("vinted", "walmart", "zalando", "zalora"),
        ),
        sites=("bol.com", "allegro.pl", "shop.tiktok.com", "shopping.google.com", "shopping.yahoo.com"),
    ),
    _Channel(
        "Organic Video",
        "Paid Video",
        mediums=("video",),
        sources=("twitch",),
        brands=(
            "bilibili",
            "dailymotion",
            "disneyplus",
            "hulu",
            "netflix",
            "vimeo",
            "wistia",
            "youku",
            "youtube",
        ),
        sites=("twitch.tv", "youtu.be"),
    ),
    _Channel(
        "Organic Social",
        "Paid Social",
        mediums=(
            "sm",
            "social",
            *(f"social{between}{end}" for between in " -" for end in ("media", "network")),
        ),
        sources=("fb", "ig", "telegram"),
        brands=(
            *("discord", "facebook", "flipboard", "instagram", "kakao", "linkedin", "medium", "messenger"),
            *("pinterest", "quora", "reddit", "snapchat", "stackoverflow", "substack", "threads", "tiktok"),
            *("tumblr", "twitter", "wechat", "weibo", "whatsapp", "xing", "yelp"),
        ),
        sites=(
            *("bsky.app", "discord.gg", "fb.me", "lnkd.in", "mastodon.social", "news.ycombinator.com"),
            *("redd.it", "t.co", "t.me", "telegram.org", "threads.net", "vk.com", "wa.me", "x.com"),
        ),
    ),
    _Channel(
        "Organic Search",
        "Paid Search",
        sources=("ask",),
        worldwide=("google", "yahoo", "yandex"),
        brands=(
            "aol",
            "baidu",
            "bing",
            "chatgpt",
            "duckduckgo",
            "kagi",
            "naver",
            "qwant",
            "sogou",
            "startpage",
        ),
        sites=(
            *("ask.com", "chat.openai.com", "ecosia.org", "grok.com", "perplexity.ai"),
            *("search.brave.com", "seznam.cz", "you.com"),
        ),
    ),
    _Channel("Affiliate", mediums=("affiliate", "partnership", "partnerships")),
    _Channel("Audio", mediums=("audio",)),
    _Channel("Display", "Display", mediums=("banner", "cpm", "display", "expandable", "interstitial")),
    _Channel("Push", mediums=("mobile", "notification", "push"), sources=("firebase",)),
    _Channel("Referral", mediums=("app", "link", "referral")),
    _Channel("SMS", mediums=("sms",), sources=("sms",)),
)
_PAID_MEDIUM = "^(?:cpc|cpm|cpv|cpa|ppc|retargeting)$|^paid"
_SHOPPING = "(?:[^a-df-z]|^)shop|shopping"  # that of a "workshop" is none
_NO_SOURCE = "^(?:[(]direct[)]|direct|[$]direct)$"


def channel_of(columns: Mapping[str, str], dialect: Dialect, parameters: Parameters) -> str:
    """Return the channel, never NULL, of a session whose columns hold the `PARTS`; they may be NULL."""

    def part(name: str) -> str:
        return f"nullif({columns[f'$entry_{name}']}, 'null')"

    campaign, medium, source = (f"lower({part(f'utm_{name}')})" for name in ("campaign", "medium", "source"))
    referrer, gad_source = part("referring_domain"), part("gad_source")
    has_gclid, has_fbclid = (f"{part(name)} IS NOT NULL" for name in ("gclid", "fbclid"))

    def like(text: str, pattern: str) -> str:
        return dialect.matches(text, parameters.bind(pattern))

    def known(kind: str) -> str:
        """Return the channel by the first property that decides it; else NULL."""
        of_source, of_medium, of_referrer = [], [], []
        for channel in _CHANNELS:
            name = channel.paid if kind == "Paid" else channel.organic
            if name is None:
                continue
            if pattern := channel.source_pattern():
                of_source.append(f"WHEN {like(source, pattern)} THEN '{name}'")
                of_referrer.append(f"WHEN {like(referrer, pattern)} THEN '{name}'")
            if pattern := channel.medium_pattern():
                of_medium.append(f"WHEN {like(medium, pattern)} THEN '{name}'")
        of_campaign = [f"WHEN {like(campaign, _SHOPPING)} THEN '{kind} Shopping'"]
        tests = (of_source, of_campaign, of_medium, of_referrer)
        return "coalesce({})".format(", ".join(f"CASE {' '.join(cases)} END" for cases in tests))

    is_video = like(campaign, "video")
    paid = (
        f"CASE WHEN {gad_source} = '1' THEN 'Paid Search' WHEN {is_video} THEN 'Paid Video' "
        f"WHEN {has_fbclid} THEN 'Paid Social' ELSE 'Paid Unknown' END"
    )
    organic = (
        f"CASE WHEN {is_video} THEN 'Organic Video' WHEN {like(medium, 'push$')} THEN 'Push' "
        f"WHEN {has_fbclid} THEN 'Organic Social' WHEN {referrer} = '$direct' THEN 'Direct' "
        f"WHEN {referrer} IS NOT NULL THEN 'Referral' ELSE 'Unknown' END"
    )
    return (
        f"CASE WHEN {like(campaign, 'cross-network')} THEN 'Cross Network' "
        f"WHEN {like(medium, _PAID_MEDIUM)} OR {has_gclid} OR {gad_source} IS NOT NULL "
        f"THEN coalesce({known('Paid')}, {paid}) "
        f"WHEN {referrer} = '$direct' AND {medium} IS NULL AND NOT {has_fbclid} "
        f"AND ({source} IS NULL OR {like(source, _NO_SOURCE)}) THEN 'Direct' "
        f"ELSE coalesce({known('Organic')}, {organic}) END"
    )
