"""Every table of the metadata database (``hoglab.db``) and of the queue database (``queue.db``).

Tables are plain SQLAlchemy Core. Rooms import the tables they own from the module of their name.
"""

from hoglab.storage.database.tables.accounts import (
    login_link,
    membership,
    organization,
    personal_api_key,
    project,
    user,
    user_session,
)
from hoglab.storage.database.tables.activity import activity_log, change_version, internal_event
from hoglab.storage.database.tables.base import metadata, queue_metadata
from hoglab.storage.database.tables.experiments import (
    experiment,
    experiment_holdout,
    experiment_recalculation,
    experiment_record,
    experiment_saved_metric,
    metric_recalculation,
    metric_result,
    saved_metric,
)
from hoglab.storage.database.tables.flags import feature_flag, flag_hash_key_override, flag_log_in
from hoglab.storage.database.tables.functions import action, hog_function, hog_function_revision
from hoglab.storage.database.tables.ingestion import (
    ingestion_progress,
    ingestion_warning,
    person_override,
    quarantined_record,
)
from hoglab.storage.database.tables.installation import installation, queue_installation
from hoglab.storage.database.tables.jobs import job, query_status
from hoglab.storage.database.tables.people import (
    cohort,
    cohort_person,
    group,
    group_type,
    person,
    person_distinct_id,
    person_erasure,
)
from hoglab.storage.database.tables.queue import (
    app_metric,
    backfill,
    consumer_position,
    dead_event,
    deferred_record,
    destination_outage,
    event_log_head,
    event_log_record,
    function_pace,
    invocation,
    invocation_result,
    log_entry,
    log_lease,
    log_reader,
    masking_counter,
    queue_worker,
    watcher_state,
)
from hoglab.storage.database.tables.requests import idempotency_key
from hoglab.storage.database.tables.warehouse import warehouse_table

__all__ = [
    "action",
    "activity_log",
    "app_metric",
    "backfill",
    "change_version",
    "cohort",
    "cohort_person",
    "consumer_position",
    "dead_event",
    "deferred_record",
    "destination_outage",
    "event_log_head",
    "event_log_record",
    "experiment",
    "experiment_holdout",
    "experiment_recalculation",
    "experiment_record",
    "experiment_saved_metric",
    "feature_flag",
    "flag_hash_key_override",
    "flag_log_in",
    "function_pace",
    "group",
    "group_type",
    "hog_function",
    "hog_function_revision",
    "idempotency_key",
    "ingestion_progress",
    "ingestion_warning",
    "installation",
    "internal_event",
    "invocation",
    "invocation_result",
    "job",
    "log_entry",
    "log_lease",
    "log_reader",
    "login_link",
    "masking_counter",
    "membership",
    "metadata",
    "metric_recalculation",
    "metric_result",
    "organization",
    "person",
    "person_distinct_id",
    "person_erasure",
    "person_override",
    "personal_api_key",
    "project",
    "quarantined_record",
    "query_status",
    "queue_installation",
    "queue_metadata",
    "queue_worker",
    "saved_metric",
    "user",
    "user_session",
    "warehouse_table",
    "watcher_state",
]
