"""What the endpoints of results take and give, for the reference."""

# Annotations of models are evaluated by Pydantic, so they are not postponed here.

from typing import Any

from hoglab.http.fields import WireModel


class TimeseriesQuery(WireModel):
    """Both are needed; take them from the metric object of the experiment."""

    metric_uuid: str
    fingerprint: str


class TimeseriesOut(WireModel):
    experiment_id: int
    metric_uuid: str
    status: str
    timeseries: dict[str, dict[str, Any] | None]
    errors: dict[str, str] | None
    computed_at: str | None
    created_at: str
    updated_at: str
    recalculation_status: str | None
    recalculation_created_at: str | None


class RecalculateBody(WireModel):
    metric: dict[str, Any]
    fingerprint: str


class RecalculationOut(WireModel):
    id: str
    experiment_id: int
    metric_uuid: str | None
    fingerprint: str
    status: str
    created_at: str


class QueryBody(WireModel):
    """``query.kind`` is ``ExperimentQuery`` or ``ExperimentExposureQuery``."""

    query: dict[str, Any]
