"""Experiments as bare as they can be served: hand-written SQL on `sqlite3`, and Starlette.

A peer of `api_experiments`. Stored JSON is copied into the answer as it is. There are no checks of key, scope and
project, no fingerprints, entity tags and metrics.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from benchmarks._experiment_wire import EXPERIMENT, FLAG, HOLDOUT, LINK, USER, moment, parameters, status

# How the table calls what the wire calls otherwise.
_COLUMNS = {"team_id": "project_id", "evaluation_tags": "evaluation_contexts"}
_FLAG_COLUMNS = [_COLUMNS.get(name, name) for name in FLAG]
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
            holdout = dict(zip(HOLDOUT, its_holdout, strict=True))
            holdout |= {
                "filters": json(its_holdout[3]),
                "created_by": its_user if its_user and its_user["id"] == its_holdout[4] else None,
                "created_at": moment(its_holdout[5]),
                "updated_at": moment(its_holdout[6]),
            }
        continuity = flag_(its_flag[7])
        own = None if row[6] is None else orjson.loads(row[6])
        values = (
            row[0],
            row[1],
            row[2],
            moment(row[3]),
            moment(row[4]),
            its_flag[3],
            flag(its_flag),
            holdout,
            row[27],
            row[5],
            parameters(own, filters, continuity),
            json(row[7]),
            json(row[8]),
            json(row[9]),
            links,
            None,
            json(row[10]),
            bool(row[11]),
            bool(row[12]),
            its_user,
            moment(row[13]),
            moment(row[14]),
            row[15],
            json(row[16]),
            json(row[17]),
            json(row[18]),
            json(row[19]),
            json(row[20]),
            row[21],
            row[22],
            row[23],
            json(row[24]),
            json(row[25]),
            bool(row[26]),
            status(row[3], row[4], bool(its_flag[6])),
            False,
            "manager",
        )
        return dict(zip(EXPERIMENT, values, strict=True))

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
