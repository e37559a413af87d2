"""The first schema"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "change_version",
        sa.Column("topic", sa.String(length=32), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("topic", "project_id", name=op.f("pk_change_version")),
    )
    op.create_table(
        "organization",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_organization")),
    )
    op.create_table(
        "project",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("organization_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("api_token", sa.String(length=64), nullable=False),
        sa.Column("timezone", sa.String(length=64), server_default="UTC", nullable=False),
        sa.Column("test_account_filters", sa.Text(), nullable=False),
        sa.Column("person_display_name_properties", sa.Text(), nullable=True),
        sa.Column("anonymize_ips", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("experiment_defaults", sa.Text(), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organization.id"], name=op.f("fk_project_organization_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_project")),
        sa.UniqueConstraint("api_token", name=op.f("uq_project_api_token")),
        sa.UniqueConstraint("uuid", name=op.f("uq_project_uuid")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("project", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_project_organization_id"), ["organization_id"], unique=False)

    op.create_table(
        "group",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("group_type_index", sa.Integer(), nullable=False),
        sa.Column("group_key", sa.String(length=400), nullable=False),
        sa.Column("properties", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_group_project_id")),
        sa.PrimaryKeyConstraint("project_id", "group_type_index", "group_key", name=op.f("pk_group")),
    )
    op.create_table(
        "group_type",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("group_type_index", sa.Integer(), nullable=False),
        sa.Column("group_type", sa.String(length=400), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_group_type_project_id")),
        sa.PrimaryKeyConstraint("project_id", "group_type_index", name=op.f("pk_group_type")),
        sa.UniqueConstraint("project_id", "group_type", name=op.f("uq_group_type_project_id_group_type")),
    )
    op.create_table(
        "person",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("properties", sa.Text(), nullable=False),
        sa.Column("is_identified", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("version", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_person_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_person")),
        sa.UniqueConstraint("project_id", "uuid", name=op.f("uq_person_project_id_uuid")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("person", schema=None) as batch_op:
        batch_op.create_index("ix_person_project_created", ["project_id", "created_at"], unique=False)

    op.create_table(
        "user",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("distinct_id", sa.String(length=200), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("first_name", sa.Text(), server_default="", nullable=False),
        sa.Column("last_name", sa.Text(), server_default="", nullable=False),
        sa.Column("is_email_verified", sa.Boolean(), nullable=True),
        sa.Column("hedgehog_config", sa.Text(), nullable=True),
        sa.Column("role_at_organization", sa.String(length=64), nullable=True),
        sa.Column("is_active", sa.Boolean(), server_default="1", nullable=False),
        sa.Column("current_project_id", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["current_project_id"], ["project.id"], name=op.f("fk_user_current_project_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_user")),
        sa.UniqueConstraint("distinct_id", name=op.f("uq_user_distinct_id")),
        sa.UniqueConstraint("email", name=op.f("uq_user_email")),
        sa.UniqueConstraint("uuid", name=op.f("uq_user_uuid")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "action",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=400), nullable=True),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("steps", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("deleted", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("created_by_id", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["created_by_id"], ["user.id"], name=op.f("fk_action_created_by_id")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_action_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_action")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("action", schema=None) as batch_op:
        batch_op.create_index("ix_action_project_deleted", ["project_id", "deleted"], unique=False)

    op.create_table(
        "activity_log",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=True),
        sa.Column("activity", sa.String(length=64), nullable=False),
        sa.Column("scope", sa.String(length=64), nullable=False),
        sa.Column("item_id", sa.String(length=64), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("is_system", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_activity_log_project_id")),
        sa.ForeignKeyConstraint(["user_id"], ["user.id"], name=op.f("fk_activity_log_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_activity_log")),
    )
    with op.batch_alter_table("activity_log", schema=None) as batch_op:
        batch_op.create_index(
            "ix_activity_log_item", ["project_id", "scope", "item_id", "created_at"], unique=False
        )
        batch_op.create_index("ix_activity_log_project_created", ["project_id", "created_at"], unique=False)

    op.create_table(
        "cohort",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("filters", sa.Text(), nullable=True),
        sa.Column("query", sa.Text(), nullable=True),
        sa.Column("groups", sa.Text(), nullable=False),
        sa.Column("is_static", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("is_calculating", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("deleted", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("count", sa.Integer(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("pending_version", sa.Integer(), nullable=True),
        sa.Column("errors_calculating", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_error_message", sa.Text(), nullable=True),
        sa.Column("last_calculation", sa.BigInteger(), nullable=True),
        sa.Column("created_by_id", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["created_by_id"], ["user.id"], name=op.f("fk_cohort_created_by_id")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_cohort_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cohort")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("cohort", schema=None) as batch_op:
        batch_op.create_index("ix_cohort_project_deleted", ["project_id", "deleted"], unique=False)

    op.create_table(
        "experiment_holdout",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=400), nullable=False),
        sa.Column("description", sa.String(length=400), nullable=True),
        sa.Column("filters", sa.Text(), nullable=False),
        sa.Column("created_by_id", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["created_by_id"], ["user.id"], name=op.f("fk_experiment_holdout_created_by_id")
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_experiment_holdout_project_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiment_holdout")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("experiment_holdout", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_experiment_holdout_project_id"), ["project_id"], unique=False)

    op.create_table(
        "feature_flag",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=500), nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("filters", sa.Text(), nullable=False),
        sa.Column("active", sa.Boolean(), server_default="1", nullable=False),
        sa.Column("archived", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("deleted", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("ensure_experience_continuity", sa.Boolean(), nullable=True),
        sa.Column("is_remote_configuration", sa.Boolean(), nullable=True),
        sa.Column("has_encrypted_payloads", sa.Boolean(), nullable=True),
        sa.Column("evaluation_runtime", sa.String(length=16), nullable=True),
        sa.Column("bucketing_identifier", sa.String(length=16), nullable=True),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("evaluation_contexts", sa.Text(), nullable=False),
        sa.Column("creation_context", sa.String(length=64), nullable=True),
        sa.Column("created_by_id", sa.Integer(), nullable=True),
        sa.Column("last_modified_by_id", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("last_called_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["created_by_id"], ["user.id"], name=op.f("fk_feature_flag_created_by_id")),
        sa.ForeignKeyConstraint(
            ["last_modified_by_id"], ["user.id"], name=op.f("fk_feature_flag_last_modified_by_id")
        ),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_feature_flag_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_feature_flag")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("feature_flag", schema=None) as batch_op:
        batch_op.create_index(
            "ix_feature_flag_list", ["project_id", "deleted", "archived", "created_at"], unique=False
        )
        batch_op.create_index("uq_feature_flag_project_key", ["project_id", "key"], unique=True)

    op.create_table(
        "flag_hash_key_override",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("person_id", sa.Integer(), nullable=False),
        sa.Column("feature_flag_key", sa.String(length=500), nullable=False),
        sa.Column("hash_key", sa.String(length=400), nullable=False),
        sa.ForeignKeyConstraint(
            ["person_id"], ["person.id"], name=op.f("fk_flag_hash_key_override_person_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_flag_hash_key_override_project_id")
        ),
        sa.PrimaryKeyConstraint(
            "project_id", "person_id", "feature_flag_key", name=op.f("pk_flag_hash_key_override")
        ),
    )
    op.create_table(
        "hog_function",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("type", sa.String(length=32), nullable=True),
        sa.Column("name", sa.String(length=400), nullable=True),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("enabled", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("deleted", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("hog", sa.Text(), nullable=False),
        sa.Column("bytecode", sa.Text(), nullable=True),
        sa.Column("transpiled", sa.Text(), nullable=True),
        sa.Column("inputs_schema", sa.Text(), nullable=False),
        sa.Column("inputs", sa.Text(), nullable=False),
        sa.Column("encrypted_inputs", sa.LargeBinary(), nullable=True),
        sa.Column("filters", sa.Text(), nullable=False),
        sa.Column("masking", sa.Text(), nullable=True),
        sa.Column("mappings", sa.Text(), nullable=True),
        sa.Column("icon_url", sa.Text(), nullable=True),
        sa.Column("template_id", sa.String(length=400), nullable=True),
        sa.Column("template", sa.Text(), nullable=True),
        sa.Column("execution_order", sa.SmallInteger(), nullable=True),
        sa.Column("create_in_folder", sa.Text(), nullable=True),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("compiler_version", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_by_id", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["created_by_id"], ["user.id"], name=op.f("fk_hog_function_created_by_id")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_hog_function_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hog_function")),
    )
    with op.batch_alter_table("hog_function", schema=None) as batch_op:
        batch_op.create_index(
            "ix_hog_function_list", ["project_id", "deleted", "type", "enabled"], unique=False
        )

    op.create_table(
        "membership",
        sa.Column("organization_id", sa.String(length=36), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("joined_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organization.id"], name=op.f("fk_membership_organization_id")
        ),
        sa.ForeignKeyConstraint(["user_id"], ["user.id"], name=op.f("fk_membership_user_id")),
        sa.PrimaryKeyConstraint("organization_id", "user_id", name=op.f("pk_membership")),
    )
    op.create_table(
        "person_distinct_id",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("distinct_id", sa.String(length=400), nullable=False),
        sa.Column("person_id", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(
            ["person_id"], ["person.id"], name=op.f("fk_person_distinct_id_person_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_person_distinct_id_project_id")
        ),
        sa.PrimaryKeyConstraint("project_id", "distinct_id", name=op.f("pk_person_distinct_id")),
    )
    with op.batch_alter_table("person_distinct_id", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_person_distinct_id_person_id"), ["person_id"], unique=False)

    op.create_table(
        "personal_api_key",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("secure_value", sa.String(length=128), nullable=False),
        sa.Column("mask_value", sa.String(length=16), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("scoped_projects", sa.Text(), nullable=True),
        sa.Column("scoped_organizations", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.Column("last_rolled_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["user.id"], name=op.f("fk_personal_api_key_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_personal_api_key")),
        sa.UniqueConstraint("secure_value", name=op.f("uq_personal_api_key_secure_value")),
    )
    with op.batch_alter_table("personal_api_key", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_personal_api_key_user_id"), ["user_id"], unique=False)

    op.create_table(
        "saved_metric",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=400), nullable=False),
        sa.Column("description", sa.String(length=400), nullable=True),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("created_by_id", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["created_by_id"], ["user.id"], name=op.f("fk_saved_metric_created_by_id")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_saved_metric_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_saved_metric")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("saved_metric", schema=None) as batch_op:
        batch_op.create_index("ix_saved_metric_project_name", ["project_id", "name"], unique=False)

    op.create_table(
        "cohort_person",
        sa.Column("cohort_id", sa.Integer(), nullable=False),
        sa.Column("person_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["cohort_id"], ["cohort.id"], name=op.f("fk_cohort_person_cohort_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["person_id"], ["person.id"], name=op.f("fk_cohort_person_person_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("cohort_id", "person_id", name=op.f("pk_cohort_person")),
    )
    with op.batch_alter_table("cohort_person", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_cohort_person_person_id"), ["person_id"], unique=False)

    op.create_table(
        "experiment",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=400), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("feature_flag_id", sa.Integer(), nullable=False),
        sa.Column("holdout_id", sa.Integer(), nullable=True),
        sa.Column("exposure_cohort_id", sa.Integer(), nullable=True),
        sa.Column("parameters", sa.Text(), nullable=True),
        sa.Column("running_time_calculation", sa.Text(), nullable=False),
        sa.Column("excluded_variants", sa.Text(), nullable=False),
        sa.Column("secondary_metrics", sa.Text(), nullable=True),
        sa.Column("filters", sa.Text(), nullable=False),
        sa.Column("metrics", sa.Text(), nullable=True),
        sa.Column("metrics_secondary", sa.Text(), nullable=True),
        sa.Column("primary_metrics_ordered_uuids", sa.Text(), nullable=True),
        sa.Column("secondary_metrics_ordered_uuids", sa.Text(), nullable=True),
        sa.Column("exposure_criteria", sa.Text(), nullable=True),
        sa.Column("stats_config", sa.Text(), nullable=True),
        sa.Column("scheduling_config", sa.Text(), nullable=True),
        sa.Column("only_count_matured_users", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("type", sa.String(length=16), nullable=True),
        sa.Column("start_date", sa.BigInteger(), nullable=True),
        sa.Column("end_date", sa.BigInteger(), nullable=True),
        sa.Column("archived", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("deleted", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("conclusion", sa.String(length=32), nullable=True),
        sa.Column("conclusion_comment", sa.Text(), nullable=True),
        sa.Column("create_in_folder", sa.Text(), nullable=True),
        sa.Column("feature_flag_auto_archived", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("created_by_id", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["created_by_id"], ["user.id"], name=op.f("fk_experiment_created_by_id")),
        sa.ForeignKeyConstraint(
            ["exposure_cohort_id"],
            ["cohort.id"],
            name=op.f("fk_experiment_exposure_cohort_id"),
            ondelete="SET NULL",
        ),
        sa.ForeignKeyConstraint(
            ["feature_flag_id"], ["feature_flag.id"], name=op.f("fk_experiment_feature_flag_id")
        ),
        sa.ForeignKeyConstraint(
            ["holdout_id"],
            ["experiment_holdout.id"],
            name=op.f("fk_experiment_holdout_id"),
            ondelete="SET NULL",
        ),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_experiment_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiment")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("experiment", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_experiment_exposure_cohort_id"), ["exposure_cohort_id"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_experiment_feature_flag_id"), ["feature_flag_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_experiment_holdout_id"), ["holdout_id"], unique=False)
        batch_op.create_index(
            "ix_experiment_list", ["project_id", "deleted", "archived", "created_at"], unique=False
        )

    op.create_table(
        "experiment_saved_metric",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.Column("saved_metric_id", sa.Integer(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiment.id"],
            name=op.f("fk_experiment_saved_metric_experiment_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["saved_metric_id"],
            ["saved_metric.id"],
            name=op.f("fk_experiment_saved_metric_saved_metric_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiment_saved_metric")),
        sa.UniqueConstraint(
            "experiment_id",
            "saved_metric_id",
            name=op.f("uq_experiment_saved_metric_experiment_id_saved_metric_id"),
        ),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("experiment_saved_metric", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_experiment_saved_metric_saved_metric_id"), ["saved_metric_id"], unique=False
        )

    op.create_table(
        "metric_recalculation",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.Column("metric_uuid", sa.String(length=64), nullable=True),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("last_successful_date", sa.String(length=10), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiment.id"],
            name=op.f("fk_metric_recalculation_experiment_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metric_recalculation")),
    )
    with op.batch_alter_table("metric_recalculation", schema=None) as batch_op:
        batch_op.create_index(
            "ix_metric_recalculation_key", ["experiment_id", "fingerprint", "status"], unique=False
        )

    op.create_table(
        "metric_result",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.Column("metric_uuid", sa.String(length=64), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("query_from", sa.BigInteger(), nullable=False),
        sa.Column("query_to", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("query_id", sa.String(length=64), nullable=True),
        sa.Column("completed_at", sa.BigInteger(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiment.id"],
            name=op.f("fk_metric_result_experiment_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metric_result")),
        sa.UniqueConstraint(
            "experiment_id",
            "metric_uuid",
            "fingerprint",
            "query_to",
            name=op.f("uq_metric_result_experiment_id_metric_uuid_fingerprint_query_to"),
        ),
        sqlite_autoincrement=True,
    )
