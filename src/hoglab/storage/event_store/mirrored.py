"""A code for properties: what an event says a second and a third time is told from what it says first.

Ingestion copies what describes a visitor into ``$set``, and into ``$set_once`` under names that begin with
``$initial_`` (spec sdk-wire 1.12). These copies are nearly half of the text of most events. Where exactly they would
come out again, sealed events are kept without them, and with the place where they were. Which event that is true of
is found out for each one, letter by letter: a change of what ingestion copies makes events larger, never wrong.

`NAMES` and the pattern made of them belong to the format of stored files: a change needs a new code beside this one.
"""

from __future__ import annotations

from typing import Final

from hoglab.patterns import escape, searched

NAMES: Final = (
    "$app_build",
    "$app_name",
    "$app_namespace",
    "$app_version",
    "$browser",
    "$browser_version",
    "$device_type",
    "$current_url",
    "$pathname",
    "$os",
    "$os_name",
    "$os_version",
    "$referring_domain",
    "$referrer",
    "$screen_height",
    "$screen_width",
    "$viewport_height",
    "$viewport_width",
    "$raw_user_agent",
    "utm_source",
    "utm_medium",
    "utm_campaign",
    "utm_content",
    "utm_name",
    "utm_term",
    "gclid",
    "gad_source",
    "gclsrc",
    "dclid",
    "gbraid",
    "wbraid",
    "fbclid",
    "msclkid",
    "twclid",
    "li_fat_id",
    "mc_cid",
    "igshid",
    "ttclid",
    "rdt_cid",
    "irclid",
    "_kx",
    "epik",
    "qclid",
    "sccid",
)
"""The properties that are told again."""

LEFT_OUT: Final = ("$set", "$set_once")
"""The properties that the text of a sealed event may lack."""

_NAME = "|".join(escape(name) for name in NAMES)
_PAIR = rf'"(?:{_NAME})":(?:"(?:[^"\\]|\\.)*"|[^",{{}}\[\]n][^",{{}}\[\]]*)'  # null is not told again
_BEGIN = ',"$set":{'
_BETWEEN = '},"$set_once":{'
_INITIAL = ',"$initial_'
_PAIRS = searched(_PAIR)
_NAME_BEGINS = searched(r',"\$?')


def _copies(head: str) -> str:
    """Return SQL of the copies that follow from the text before them."""
    pairs = f"array_to_string(regexp_extract_all({head}, '{_PAIR}'), ',')"
    initial = f"substring(regexp_replace(',' || {pairs}, '{_NAME_BEGINS.pattern}', '{_INITIAL}', 'g'), 2)"
    return f"'{_BEGIN}' || {pairs} || '{_BETWEEN}' || {initial} || '}}'"


def shortened(relation: str) -> str:
    """Return SQL of a relation with ``properties`` without copies, and ``copied_at``.

    After how many characters they were; 0 where nothing was left out.
    """
    return (
        "SELECT * EXCLUDE (begins, head, copies, follows) "  # noqa: S608 - our own words
        "REPLACE (CASE WHEN follows THEN head || substring(properties, begins + length(copies)) ELSE properties END "
        "AS properties), CASE WHEN follows THEN length(head) ELSE 0 END::INTEGER AS copied_at "
        "FROM (SELECT *, begins > 1 AND starts_with(substring(properties, begins), copies) AS follows "
        f"FROM (SELECT *, {_copies('head')} AS copies "
        "FROM (SELECT *, left(properties, begins - 1) AS head "
        f"FROM (SELECT *, position('{_BEGIN}' IN properties) AS begins FROM {relation}))))"
    )


def whole(properties: str, copied_at: str) -> str:
    """Return SQL of the text as it was before `shortened`."""
    head = f"left({properties}, {copied_at})"
    return (
        f"CASE WHEN {copied_at} > 0 THEN {head} || {_copies(head)} || substring({properties}, {copied_at} + 1) "
        f"ELSE {properties} END"
    )


def restored(properties: str, copied_at: int) -> str:
    """Return the text as it was before `shortened`: what `whole` gives in SQL, in a tenth of its time for one text."""
    if copied_at <= 0:
        return properties
    head = properties[:copied_at]
    pairs = ",".join(_PAIRS.findall(head))
    initial = _NAME_BEGINS.sub(_INITIAL, "," + pairs)[1:]
    return f"{head}{_BEGIN}{pairs}{_BETWEEN}{initial}}}{properties[copied_at:]}"
