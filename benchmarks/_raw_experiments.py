"""Experiments as bare as they can be served: hand-written SQL on `sqlite3`, and Starlette.

A peer of `api_experiments`. Stored JSON is copied into the answer as it is. There are no checks of key, scope and
project, no fingerprints, entity tags and metrics.
"""

from __future__ import annotations

import os
import sqlite3
from datetime import UTC, datetime
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

FLAG = [
    "id",
    "team_id",
    "name",
    "key",
    "filters",
    "deleted",
    "active",
    "ensure_experience_continuity",
    "has_encrypted_payloads",
    "version",
    "evaluation_runtime",
    "evaluation_tags",
    "bucketing_identifier",
    "evaluation_contexts",
]
USER = [
    "id",
    "uuid",
    "distinct_id",
    "first_name",
    "last_name",
    "email",
    "is_email_verified",
    "hedgehog_config",
    "role_at_organization",
]
LINK = ["id", "experiment", "saved_metric", "metadata", "created_at", "query", "name"]


def moment(micros: int | None) -> datetime | None:
    return (
        None
        if micros is None
        else datetime.fromtimestamp(micros // 10**6, UTC).replace(microsecond=micros % 10**6)
    )


def parameters(stored: dict[str, Any] | None, filters: dict[str, Any], continuity: bool | None) -> Any:
    """The stored parameters and the flag's part of them."""
    shown = {
        **(stored or {}),
        "feature_flag_variants": [
            {**variant, "split_percent": variant["rollout_percentage"]}
            for variant in filters["multivariate"]["variants"]
        ],
        "rollout_percentage": filters["groups"][0]["rollout_percentage"],
    }
    if continuity is not None:
        shown["ensure_experience_continuity"] = continuity
    return shown


def status(start: Any, end: Any, active: bool) -> str:
    if start is None:
        return "draft"
    if end is not None:
        return "stopped"
    return "running" if active else "paused"


_FLAG_COLUMNS = [
    "id",
    "project_id",
    "name",
    "key",
    "filters",
    "deleted",
    "active",
    "ensure_experience_continuity",
    "has_encrypted_payloads",
    "version",
    "evaluation_runtime",
    "evaluation_contexts",
    "bucketing_identifier",
    "evaluation_contexts",
]
_SELECT = f"""SELECT e.id, e.name, e.description, e.start_date, e.end_date, e.exposure_cohort_id, e.parameters,
  e.running_time_calculation, e.excluded_variants, e.secondary_metrics, e.filters, e.archived, e.deleted,
  e.created_at, e.updated_at, e.type, e.exposure_criteria, e.metrics, e.metrics_secondary, e.stats_config,
  e.scheduling_config, e.create_in_folder, e.conclusion, e.conclusion_comment, e.primary_metrics_ordered_uuids,
  e.secondary_metrics_ordered_uuids, e.only_count_matured_users, e.holdout_id,
  {", ".join(f"f.{name}" for name in _FLAG_COLUMNS)},
  {", ".join(f"u.{name}" for name in USER)},
  h.id, h.name, h.description, h.filters, h.created_by_id, h.created_at, h.updated_at
FROM experiment e JOIN feature_flag f ON f.id = e.feature_flag_id LEFT JOIN user u ON u.id = e.created_by_id
  LEFT JOIN experiment_holdout h ON h.id = e.holdout_id
"""  # noqa: S608 - of constants
_ONE = _SELECT + "WHERE e.id = ? AND e.project_id = ? AND NOT e.deleted"
_MANY = (
    _SELECT
    + "WHERE e.project_id = ? AND NOT e.deleted AND NOT e.archived ORDER BY e.created_at DESC, e.id DESC LIMIT ?"
)
_COUNT = "SELECT count(*) FROM experiment WHERE project_id = ? AND NOT deleted AND NOT archived"
_LINKS = """
SELECT l.id, l.experiment_id, l.saved_metric_id, l.metadata, l.created_at, m.query, m.name
FROM experiment_saved_metric l JOIN saved_metric m ON m.id = l.saved_metric_id
WHERE l.experiment_id IN (%s) ORDER BY l.id
"""


def application() -> Any:
    """An ASGI application."""
    connection = sqlite3.connect(
        os.environ["BENCHMARK_DATABASE"], isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA query_only=ON")

    def json(text: str | None) -> Any:
        return None if text is None else orjson.Fragment(text)

    def flag_(column: int | None) -> bool | None:
        return None if column is None else bool(column)

    def user(values: tuple[Any, ...]) -> dict[str, Any] | None:
        if values[0] is None:
            return None
        shown = dict(zip(USER, values, strict=True))
        shown["is_email_verified"] = flag_(shown["is_email_verified"])
        shown["hedgehog_config"] = json(shown["hedgehog_config"])
        return shown

    def flag(values: tuple[Any, ...]) -> dict[str, Any]:
        shown = dict(zip(FLAG, values, strict=True))
        for name in ("deleted", "active", "ensure_experience_continuity", "has_encrypted_payloads"):
            shown[name] = flag_(shown[name])
        for name in ("filters", "evaluation_tags", "evaluation_contexts"):
            shown[name] = json(shown[name])
        return shown

    def shown(row: tuple[Any, ...], links: list[dict[str, Any]]) -> dict[str, Any]:
        its_flag, its_user, its_holdout = row[28:42], user(row[42:51]), row[51:]
        filters = orjson.loads(its_flag[4])
        holdout = None
        if its_holdout[0] is not None:
            holdout = {
                "id": its_holdout[0],
                "name": its_holdout[1],
                "description": its_holdout[2],
                "filters": json(its_holdout[3]),
                "created_by": its_user if its_user and its_user["id"] == its_holdout[4] else None,
                "created_at": moment(its_holdout[5]),
                "updated_at": moment(its_holdout[6]),
            }
        continuity = flag_(its_flag[7])
        own = None if row[6] is None else orjson.loads(row[6])
        return {
            "id": row[0],
            "name": row[1],
            "description": row[2],
            "start_date": moment(row[3]),
            "end_date": moment(row[4]),
            "feature_flag_key": its_flag[3],
            "feature_flag": flag(its_flag),
            "holdout": holdout,
            "holdout_id": row[27],
            "exposure_cohort": row[5],
            "parameters": parameters(own, filters, continuity),
            "running_time_calculation": json(row[7]),
            "excluded_variants": json(row[8]),
            "secondary_metrics": json(row[9]),
            "saved_metrics": links,
            "saved_metrics_ids": None,
            "filters": json(row[10]),
            "archived": bool(row[11]),
            "deleted": bool(row[12]),
            "created_by": its_user,
            "created_at": moment(row[13]),
            "updated_at": moment(row[14]),
            "type": row[15],
            "exposure_criteria": json(row[16]),
            "metrics": json(row[17]),
            "metrics_secondary": json(row[18]),
            "stats_config": json(row[19]),
            "scheduling_config": json(row[20]),
            "_create_in_folder": row[21],
            "conclusion": row[22],
            "conclusion_comment": row[23],
            "primary_metrics_ordered_uuids": json(row[24]),
            "secondary_metrics_ordered_uuids": json(row[25]),
            "only_count_matured_users": bool(row[26]),
            "status": status(row[3], row[4], bool(its_flag[6])),
            "is_legacy": False,
            "user_access_level": "manager",
        }

    def page(rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
        links: dict[int, list[dict[str, Any]]] = {row[0]: [] for row in rows}
        for link in connection.execute(_LINKS % ",".join("?" * len(links)), list(links)):
            entry = dict(zip(LINK, link, strict=True))
            entry |= {
                "metadata": json(link[3]),
                "created_at": moment(link[4]),
                "query": json(link[5]),
            }
            links[link[1]].append(entry)
        return [shown(row, links[row[0]]) for row in rows]

    def answer(value: Any) -> Response:
        return Response(orjson.dumps(value, option=orjson.OPT_UTC_Z), media_type="application/json")

    async def read(request: Any) -> Response:
        found = connection.execute(_ONE, (request.path_params["id"], request.path_params["project"]))
        return answer(page(found.fetchall())[0])

    async def list_(request: Any) -> Response:
        project = request.path_params["project"]
        limit = int(request.query_params["limit"])
        count = connection.execute(_COUNT, (project,)).fetchone()[0]
        rows = connection.execute(_MANY, (project, limit)).fetchall()
        following = str(request.url.include_query_params(offset=limit)) if count > limit else None
        return answer({"count": count, "next": following, "previous": None, "results": page(rows)})

    one = "/api/projects/{project:int}/experiments/{id:int}/"
    return Starlette(routes=[Route(one, read), Route("/api/projects/{project:int}/experiments/", list_)])
