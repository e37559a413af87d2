"""Remote configuration: what posthog-js asks for when it starts (spec: sdk-wire 2.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import orjson

from hoglab.patterns import IGNORECASE, searched

CACHE_CONTROL = "public, max-age=300"

EMPTY_ANSWERS: dict[str, dict[str, Any]] = {
    "/api/surveys": {"surveys": []},
    "/api/early_access_features": {"earlyAccessFeatures": []},
    "/api/web_experiments": {"experiments": []},
    "/api/product_tours": {"product_tours": []},
}
"""The fields of products that this server does not have, as browsers expect them."""


NO_SURVEYS = (
    b"(window.__PosthogExtensions__ = window.__PosthogExtensions__ || {}).generateSurveys = function () {};\n"
)
"""The script with which posthog-js shows surveys, for a server without surveys.

Browsers ask for it at every start, and a 404 would be an error on the console of each page.
"""


def config_fields(*, has_flags: bool) -> dict[str, Any]:
    """Return the settings that an evaluation answer repeats when it is asked for ``config``."""
    return {
        "supportedCompression": ["gzip", "gzip-js"],
        "hasFeatureFlags": has_flags,
        "analytics": {"endpoint": "/i/v0/e/"},
        "autocapture_opt_out": False,
        "captureDeadClicks": False,
        "capturePerformance": {
            "network_timing": False,
            "web_vitals": False,
            "web_vitals_allowed_metrics": None,
        },
        "autocaptureExceptions": False,
        "errorTracking": {"autocaptureExceptions": False, "suppressionRules": []},
        "elementsChainAsString": True,
        "sessionRecording": False,
        "heatmaps": False,
        "surveys": False,
        "defaultIdentifiedOnly": True,
        "siteApps": [],
        "toolbarParams": {},
        "isAuthenticated": False,
    }


BARE_CONFIG: dict[str, Any] = {
    "config": {"enable_collect_everything": True},
    "toolbarParams": {},
    "isAuthenticated": False,
    "supportedCompression": ["gzip", "gzip-js"],
    "sessionRecording": False,
}
"""Response of ``GET /flags`` to clients that only check whether the server is there."""


def remote_config(token: str, *, has_flags: bool) -> dict[str, Any]:
    """Return the body of ``/array/{token}/config``."""
    return {"token": token, **config_fields(has_flags=has_flags)}


_SCRIPT_END = searched(r"</(script)", IGNORECASE)


class SiteApp(Protocol):
    """Code for visitors' browsers. ``code`` is a function expression; what it returns has ``init(config)``."""

    @property
    def id(self) -> str: ...
    @property
    def code(self) -> str: ...


def remote_config_script(token: str, *, has_flags: bool, site_apps: Sequence[SiteApp] = ()) -> bytes:
    """Return the body of ``/array/{token}/config.js``: the configuration as a script, and the code of site apps."""
    name = _script_json(token)
    config = _script_json(remote_config(token, has_flags=has_flags))
    apps = b",".join(_site_app(app) for app in site_apps)
    return (
        b"(function(){window._POSTHOG_REMOTE_CONFIG=window._POSTHOG_REMOTE_CONFIG||{};"
        b"window._POSTHOG_REMOTE_CONFIG["
        + name
        + b']={"config":'
        + config
        + b',"siteApps":['
        + apps
        + b"]}})();\n"
    )


def _site_app(app: SiteApp) -> bytes:
    code = _SCRIPT_END.sub(r"<\\/\1", app.code).encode("utf-8", "replace")
    start = b'{"id":' + _script_json(app.id) + b',"init":function(config){return('
    return start + code + b")().init(config)}}"


def _script_json(value: Any) -> bytes:
    """Return JSON that is safe inside of a script element and in every JavaScript engine."""
    text = orjson.dumps(value).replace(b"</", rb"<\/")
    return text.replace("\u2028".encode(), rb"\u2028").replace("\u2029".encode(), rb"\u2029")
