"""Experiments served by a plain Django REST Framework application: models, serializers, generic views.

A peer of `api_experiments`. Related rows are joined or prefetched, so that there is no query per row. There are no
checks of key, scope and project, no fingerprints, entity tags and metrics.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models
from django.urls import path
from rest_framework import generics, pagination, serializers

from benchmarks import _experiment_wire


class MicrosField(models.BigIntegerField):
    """A moment kept as microseconds."""

    def from_db_value(self, value: int | None, *_: Any) -> datetime | None:
        return _experiment_wire.moment(value)


def reference(to: type[models.Model]) -> models.ForeignKey:
    return models.ForeignKey(to, models.DO_NOTHING, null=True, related_name="+")


class User(models.Model):
    uuid = models.TextField()
    distinct_id = models.TextField()
    first_name = models.TextField()
    last_name = models.TextField()
    email = models.TextField()
    is_email_verified = models.BooleanField(null=True)
    hedgehog_config = models.JSONField(null=True)
    role_at_organization = models.TextField(null=True)

    class Meta:
        app_label, managed, db_table = "peer", False, "user"


class Flag(models.Model):
    project_id = models.IntegerField()
    key = models.TextField()
    name = models.TextField()
    filters = models.JSONField()
    active = models.BooleanField()
    deleted = models.BooleanField()
    version = models.IntegerField()
    ensure_experience_continuity = models.BooleanField(null=True)
    has_encrypted_payloads = models.BooleanField(null=True)
    evaluation_runtime = models.TextField(null=True)
    bucketing_identifier = models.TextField(null=True)
    evaluation_contexts = models.JSONField()

    class Meta:
        app_label, managed, db_table = "peer", False, "feature_flag"


class Holdout(models.Model):
    name = models.TextField()
    description = models.TextField(null=True)
    filters = models.JSONField()
    created_by = reference(User)
    created_at = MicrosField()
    updated_at = MicrosField()

    class Meta:
        app_label, managed, db_table = "peer", False, "experiment_holdout"


class Experiment(models.Model):
    project_id = models.IntegerField()
    name = models.TextField()
    description = models.TextField(null=True)
    feature_flag = reference(Flag)
    holdout = reference(Holdout)
    exposure_cohort_id = models.IntegerField(null=True)
    parameters = models.JSONField(null=True)
    running_time_calculation = models.JSONField()
    excluded_variants = models.JSONField()
    secondary_metrics = models.JSONField(null=True)
    filters = models.JSONField()
    metrics = models.JSONField(null=True)
    metrics_secondary = models.JSONField(null=True)
    primary_metrics_ordered_uuids = models.JSONField(null=True)
    secondary_metrics_ordered_uuids = models.JSONField(null=True)
    exposure_criteria = models.JSONField(null=True)
    stats_config = models.JSONField(null=True)
    scheduling_config = models.JSONField(null=True)
    only_count_matured_users = models.BooleanField()
    type = models.TextField(null=True)
    start_date = MicrosField(null=True)
    end_date = MicrosField(null=True)
    archived = models.BooleanField()
    deleted = models.BooleanField()
    conclusion = models.TextField(null=True)
    conclusion_comment = models.TextField(null=True)
    create_in_folder = models.TextField(null=True)
    created_by = reference(User)
    created_at = MicrosField()
    updated_at = MicrosField()

    class Meta:
        app_label, managed, db_table = "peer", False, "experiment"


class SavedMetric(models.Model):
    name = models.TextField()
    query = models.JSONField()

    class Meta:
        app_label, managed, db_table = "peer", False, "saved_metric"


class Link(models.Model):
    experiment = models.ForeignKey(Experiment, models.DO_NOTHING, related_name="links")
    saved_metric = reference(SavedMetric)
    metadata = models.JSONField()
    created_at = MicrosField()

    class Meta:
        app_label, managed, db_table = "peer", False, "experiment_saved_metric"
        ordering = ("id",)


class UserOut(serializers.ModelSerializer):
    class Meta:
        model = User
        fields = _experiment_wire.USER


class FlagOut(serializers.ModelSerializer):
    team_id = serializers.IntegerField(source="project_id")
    evaluation_tags = serializers.JSONField(source="evaluation_contexts")

    class Meta:
        model = Flag
        fields = _experiment_wire.FLAG


class HoldoutOut(serializers.ModelSerializer):
    created_by = UserOut()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()

    class Meta:
        model = Holdout
        fields = _experiment_wire.HOLDOUT


class LinkOut(serializers.ModelSerializer):
    experiment = serializers.IntegerField(source="experiment_id")
    saved_metric = serializers.IntegerField(source="saved_metric_id")
    created_at = serializers.DateTimeField()
    query = serializers.JSONField(source="saved_metric.query")
    name = serializers.CharField(source="saved_metric.name")

    class Meta:
        model = Link
        fields = _experiment_wire.LINK


class ExperimentOut(serializers.ModelSerializer):
    start_date = serializers.DateTimeField()
    end_date = serializers.DateTimeField()
    feature_flag_key = serializers.CharField(source="feature_flag.key")
    feature_flag = FlagOut()
    holdout = HoldoutOut()
    holdout_id = serializers.IntegerField()
    exposure_cohort = serializers.IntegerField(source="exposure_cohort_id")
    parameters = serializers.SerializerMethodField()
    saved_metrics = LinkOut(source="links", many=True)
    saved_metrics_ids = serializers.ReadOnlyField(default=None)
    created_by = UserOut()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
    _create_in_folder = serializers.CharField(source="create_in_folder")
    status = serializers.SerializerMethodField()
    is_legacy = serializers.ReadOnlyField(default=False)
    user_access_level = serializers.ReadOnlyField(default="manager")

    class Meta:
        model = Experiment
        fields = _experiment_wire.EXPERIMENT

    def get_parameters(self, row: Experiment) -> dict[str, Any]:
        flag = row.feature_flag
        shown: dict[str, Any] = _experiment_wire.parameters(
            row.parameters, flag.filters, flag.ensure_experience_continuity
        )
        return shown

    def get_status(self, row: Experiment) -> str:
        return _experiment_wire.status(row.start_date, row.end_date, row.feature_flag.active)


class Pages(pagination.LimitOffsetPagination):
    default_limit = 100


class Experiments:
    serializer_class = ExperimentOut
    pagination_class = Pages

    def get_queryset(self) -> Any:
        everything = Experiment.objects.filter(project_id=self.kwargs["project_id"], deleted=False)
        related = everything.select_related("feature_flag", "created_by", "holdout__created_by")
        return related.prefetch_related(models.Prefetch("links", Link.objects.select_related("saved_metric")))


class One(Experiments, generics.RetrieveAPIView):
    """Read an experiment."""


class List(Experiments, generics.ListAPIView):
    """List experiments, newest first."""

    def get_queryset(self) -> Any:
        return super().get_queryset().filter(archived=False).order_by("-created_at", "-id")


_PREFIX = "api/projects/<int:project_id>/experiments/"
urlpatterns = [path(_PREFIX, List.as_view()), path(f"{_PREFIX}<int:pk>/", One.as_view())]
