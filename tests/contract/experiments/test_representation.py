"""What an experiment is, and how the fields of a request become it (rules 2, 3.1 to 3.7)."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
import sqlalchemy as sa
from tests.contract.conftest import Api, Laboratory
from tests.contract.experiments.test_changes import END, START, read
from tests.contract.experiments.test_flag_linkage import patch, refuse, shares, variants
from tests.contract.rules import rule

from hoglab.storage.database.tables import project

KEYS = [
    "id",
    "name",
    "description",
    "start_date",
    "end_date",
    "feature_flag_key",
    "feature_flag",
    "holdout",
    "holdout_id",
    "exposure_cohort",
    "parameters",
    "running_time_calculation",
    "excluded_variants",
    "secondary_metrics",
    "saved_metrics",
    "saved_metrics_ids",
    "filters",
    "archived",
    "deleted",
    "created_by",
    "created_at",
    "updated_at",
    "type",
    "exposure_criteria",
    "metrics",
    "metrics_secondary",
    "stats_config",
    "scheduling_config",
    "_create_in_folder",
    "conclusion",
    "conclusion_comment",
    "primary_metrics_ordered_uuids",
    "secondary_metrics_ordered_uuids",
    "only_count_matured_users",
    "status",
    "is_legacy",
    "user_access_level",
]
FLAG_KEYS = [
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


def refused(api: Api, **fields: Any) -> dict[str, Any]:
    """The error of a create, which leaves nothing behind."""
    error = api.refused("POST", "/experiments/", {"name": "n", "feature_flag_key": "refused", **fields})
    assert api.ok("GET", "/feature_flags/?search=refused")["count"] == 0
    return error


def set_flag(api: Api, experiment: dict[str, Any], **fields: Any) -> None:
    api.ok("PATCH", f"/feature_flags/{experiment['feature_flag']['id']}/", fields)


def set_defaults(api: Api, **defaults: Any) -> None:
    """What no endpoint sets: the project's defaults for experiments."""
    with api.database() as database, database.write() as tx:
        statement = sa.update(project).where(project.c.id == api.project_id)
        tx.connection.execute(statement.values(experiment_defaults=defaults))
        tx.changed("project", api.project_id)


class TestRow:
    @rule("2.1.1")
    def test_ids(self, api: Api, laboratory: Laboratory) -> None:
        other = laboratory.api()
        first, second = api.experiment(), other.experiment()
        assert first["id"] < second["id"]
        assert api.refused("GET", f"/experiments/{second['id']}/", status=404)
        moved = patch(api, first, id=second["id"], team_id=other.project_id)
        assert (moved["id"], moved["feature_flag"]["team_id"]) == (first["id"], api.project_id)

    @rule("2.1.2")
    def test_texts(self, api: Api) -> None:
        made = api.experiment("a", name="  Same \n")
        assert (made["name"], made["description"]) == ("Same", "")
        assert api.experiment("b", name="Same", description=None)["description"] is None
        assert refused(api, name=" ")["code"] == "blank"
        assert api.experiment("c", name="x" * 400, description="y" * 3000)["name"] == "x" * 400
        for field, text in (("name", "x" * 401), ("description", "y" * 3001)):
            error = refused(api, **{field: text})
            assert (error["attr"], error["code"]) == (field, "max_length")

    @rule("2.1.3")
    def test_holdouts_go(self, api: Api) -> None:
        body = {"name": "H", "filters": [{"properties": [], "rollout_percentage": 20}]}
        holdout = api.ok("POST", "/experiment_holdouts/", body, status=201)["id"]
        made = api.experiment(holdout_id=holdout)
        assert made["holdout"]["id"] == holdout
        assert api.call("DELETE", f"/experiment_holdouts/{holdout}/").status_code == 204
        after = read(api, made)
        assert (after["holdout"], after["holdout_id"]) == (None, None)

    @rule("2.1.4")
    def test_moments(self, api: Api) -> None:
        made = api.experiment()
        after = patch(api, made, name="Other", created_at=START, updated_at=START, created_by=None)
        assert after["updated_at"] > made["updated_at"]
        assert (after["created_at"], after["created_by"]) == (made["created_at"], made["created_by"])

    @rule("2.1.5", "3.6.2")
    def test_defaults_of_the_project(self, api: Api) -> None:
        set_defaults(
            api,
            default_experiment_stats_method="frequentist",
            default_experiment_confidence_level=0.95,
            default_only_count_matured_users=True,
        )
        numbers = count()  # the server learns of changes by another process after a moment
        made = api.until(
            lambda: (one := api.experiment(f"a-{next(numbers)}"))["only_count_matured_users"] and one
        )
        assert made["stats_config"] == {
            "method": "frequentist", "bayesian": {"ci_level": 0.95}, "frequentist": {"alpha": 0.05},
        }  # fmt: skip
        sent = {"method": "bayesian", "frequentist": {"alpha": 0.2}}
        kept = api.experiment("b", stats_config=sent, only_count_matured_users=False)
        assert kept["only_count_matured_users"] is False
        assert kept["stats_config"] == sent | {"bayesian": {"ci_level": 0.95}}


class TestState:
    @rule("2.2.1")
    @pytest.mark.parametrize(
        ("start", "end", "state"),
        [(None, None, "draft"), (None, END, "draft"), (START, None, "running"), (START, END, "stopped")],
    )
    def test_dates(self, api: Api, start: str | None, end: str | None, state: str) -> None:
        assert api.experiment("created", start_date=start, end_date=end)["status"] == state
        assert patch(api, api.experiment("changed"), start_date=start, end_date=end)["status"] == state

    @rule("2.2.2", "2.2.3")
    def test_the_flag(self, api: Api) -> None:
        made = api.experiment(start_date=START)
        frozen = {"properties": [], "exposure_frozen": True}
        for groups, state in (
            ([frozen, {"properties": []}], "running"),
            ([], "running"),
            ([frozen, frozen], "exposure_frozen"),
        ):
            set_flag(api, made, filters={"groups": groups})
            assert read(api, made)["status"] == state
        set_flag(api, made, active=False)
        assert read(api, made)["status"] == "paused"
        assert patch(api, made, end_date=END)["status"] == "stopped"


class TestAnswer:
    @rule("3.1.1", "3.1.2", "3.1.3", "3.2.1")
    def test_keys(self, api: Api) -> None:
        options = {"allow_unknown_events": True, "update_feature_flag_params": True, "_create_in_folder": "F"}
        made = api.experiment(**options)
        answers = [
            made,
            read(api, made),
            patch(api, made, **options),
            api.ok("POST", f"/experiments/{made['id']}/launch/"),
            api.ok("POST", f"/experiments/{made['id']}/duplicate/", {}),
            *api.ok("GET", "/experiments/")["results"],
        ]
        for answer in answers:
            assert list(answer) == KEYS
            assert list(answer["feature_flag"]) == FLAG_KEYS
            assert answer["saved_metrics_ids"] is None
        assert answers[1]["_create_in_folder"] == "F"
        assert made["feature_flag"]["evaluation_runtime"] == "all"

    @rule("3.3.1")
    def test_type(self, api: Api) -> None:
        for number, kind in enumerate(("web", "product", None)):
            assert api.experiment(f"flag-{number}", type=kind)["type"] == kind
        for odd in ("", "mobile"):
            error = refused(api, type=odd)
            assert (error["attr"], error["code"]) == ("type", "invalid_choice")
            assert error["detail"] == f'"{odd}" is not a valid choice.'

    @rule("3.3.2")
    def test_conclusion(self, api: Api) -> None:
        made = api.experiment()
        for value in ("won", "lost", "inconclusive", "stopped_early", "invalid", None):
            assert patch(api, made, conclusion=value)["conclusion"] == value
        assert patch(api, made, start_date=START, conclusion="won")["status"] == "running"
        assert refuse(api, made, conclusion="drawn")["code"] == "invalid_choice"
        error = refuse(api, made, conclusion_comment="x" * 4001)
        assert (error["attr"], error["code"]) == ("conclusion_comment", "max_length")

    @rule("3.3.3")
    def test_status_is_read_only(self, api: Api) -> None:
        made = api.experiment(status="stopped")
        assert (made["status"], patch(api, made, status="running")["status"]) == ("draft", "draft")


class TestParameters:
    @rule("3.4.1")
    @pytest.mark.parametrize("odd", [[], "text", 5, True])
    def test_kinds(self, api: Api, odd: Any) -> None:
        made = api.experiment()
        for error in (refused(api, parameters=odd), refuse(api, made, parameters=odd)):
            assert (error["attr"], error["detail"]) == ("parameters", "parameters must be an object")
        assert patch(api, made, parameters=None)["parameters"]["rollout_percentage"] == 100

    @rule("3.4.2")
    def test_replaced_as_a_whole(self, api: Api) -> None:
        notes = {"variant_notes": {"test": "blue"}, "anything": [1, {"a": None}]}
        made = api.experiment(parameters=notes)
        assert notes.items() <= made["parameters"].items()
        after = patch(api, made, parameters={"other": 1})["parameters"]
        assert (after["other"], notes.keys() & after.keys()) == (1, set())

    @rule("3.4.3")
    def test_read_back_from_the_flag(self, api: Api) -> None:
        made = api.experiment()
        filters = {
            "groups": [{"properties": [], "rollout_percentage": None}],
            "multivariate": {"variants": variants(control=30, b=70)},
            "payloads": {"b": "1"},
            "aggregation_group_type_index": 2,
        }
        set_flag(api, made, filters=filters)
        assert read(api, made)["parameters"] == {
            "feature_flag_variants": [
                {"key": "control", "rollout_percentage": 30, "split_percent": 30},
                {"key": "b", "rollout_percentage": 70, "split_percent": 70},
            ],
            "feature_flag_payloads": {"b": "1"},
            "aggregation_group_type_index": 2,
            "ensure_experience_continuity": False,
        }  # fmt: skip

    @rule("3.4.4")
    def test_normalised(self, api: Api) -> None:
        sent = [
            {"key": "CONTROL", "split_percent": 40, "rollout_percentage": 1},
            {"key": "Control", "rollout_percentage": 60, "name": "Second"},
        ]
        made = api.experiment("a", parameters={"feature_flag_variants": sent})
        assert made["feature_flag"]["filters"]["multivariate"]["variants"] == [
            {"key": "control", "rollout_percentage": 40},
            {"key": "Control", "rollout_percentage": 60, "name": "Second"},
        ]
        exact = [{"key": "Control", "split_percent": 50}, {"key": "control", "split_percent": 50}]
        assert shares(api.experiment("b", parameters={"feature_flag_variants": exact})) == {
            "Control": 50,
            "control": 50,
        }

    @rule("3.4.5")
    def test_calculator(self, api: Api) -> None:
        def both(one: dict[str, Any]) -> tuple[Any, Any]:
            return one["running_time_calculation"], one["parameters"].get("minimum_detectable_effect")

        made = api.experiment(parameters={"minimum_detectable_effect": 5, "recommended_sample_size": 9})
        effect_5 = {"minimum_detectable_effect": 5, "recommended_sample_size": 9}
        assert both(made) == (effect_5, 5)
        effect_7 = {"minimum_detectable_effect": 7, "exposure_estimate_config": {"metric": None}}
        assert both(patch(api, made, running_time_calculation=effect_7)) == (effect_7, 7)
        assert both(patch(api, made, parameters={})) == ({}, None)
        sent = {
            "parameters": {"minimum_detectable_effect": 1},
            "running_time_calculation": {"minimum_detectable_effect": 2},
        }
        assert both(patch(api, made, **sent)) == ({"minimum_detectable_effect": 2}, 2)

    @rule("3.4.6")
    @pytest.mark.parametrize(
        ("value", "detail"),
        [
            ([], "running_time_calculation must be an object"),
            ({"x": 1}, "running_time_calculation got unknown keys: ['x']"),
            ({"minimum_detectable_effect": True}, "minimum_detectable_effect must be a number"),
            ({"recommended_sample_size": "5"}, "recommended_sample_size must be a number"),
            ({"exposure_estimate_config": []}, "exposure_estimate_config must be an object"),
        ],
    )
    def test_malformed_calculations(self, api: Api, value: Any, detail: str) -> None:
        error = refused(api, running_time_calculation=value)
        assert (error["attr"], error["detail"]) == ("running_time_calculation", detail)


TOO_FEW = "Feature flag must have at least 2 variants (control and at least one test variant)"


class TestVariants:
    @rule("3.5.1")
    @pytest.mark.parametrize(
        ("found", "detail"),
        [
            (["a"], "Feature flag variant at index 0 must be an object"),
            ([*variants(a=50), {}], "Feature flag variant at index 1 must have a 'key' field"),
            (
                [{"key": "a"}, {"key": "b"}],
                "Each variant must include split_percent (recommended) or rollout_percentage (deprecated).",
            ),
            (variants(**{f"v{n}": 0 for n in range(21)}), "Feature flag variants must be less than 21"),
            (variants(control=100), TOO_FEW),
        ],
    )
    def test_malformed(self, api: Api, found: Any, detail: str) -> None:
        inside = refused(api, parameters={"feature_flag_variants": found})
        assert (inside["attr"], inside["detail"]) == ("parameters", detail)
        beside = refused(api, feature_flag={"filters": {"multivariate": {"variants": found}}})
        assert (beside["attr"], beside["detail"]) == (None, detail)

    @rule("3.5.2")
    def test_what_will_do(self, api: Api) -> None:
        def made(key: str, found: list[dict[str, Any]]) -> dict[str, int]:
            return shares(api.experiment(key, parameters={"feature_flag_variants": found}))

        assert made("none", []) == {"control": 50, "test": 50}
        assert made("two", variants(a=50, b=50)) == {"a": 50, "b": 50}
        twenty = {f"v{n}": 5 for n in range(20)}
        assert made("twenty", variants(**twenty)) == twenty

    @rule("3.5.3")
    @pytest.mark.parametrize(
        ("found", "code"),
        [
            (variants(control=50, test=49), "cross_field.variant_rollout_sum_not_100"),
            (variants(control=50) * 2, "cross_field.variant_keys_not_unique"),
        ],
    )
    def test_sums_and_keys(self, api: Api, found: Any, code: str) -> None:
        error = refused(api, parameters={"feature_flag_variants": found})
        assert (error["attr"], error["code"]) == ("filters", code)
        thirds = [{"key": key, "split_percent": 33.333333333333336} for key in ("a", "b")]
        rest = {"key": "c", "split_percent": 33.33333333333333}
        assert api.experiment("thirds", parameters={"feature_flag_variants": [*thirds, rest]})

    @rule("3.5.4", "3.5.5")
    @pytest.mark.parametrize(
        ("value", "detail"),
        [
            ("test", "excluded_variants must be a list of strings"),
            ([1], "excluded_variants must be a list of strings"),
            (["holdout-3"], "cannot exclude holdout pseudo-variants: ['holdout-3']"),
            (["control"], "baseline variant cannot be excluded ('control')"),
            (["x"], "unknown variants for this experiment: ['x']"),
            (["test"], "at least one test variant must remain in analysis"),
        ],
    )
    def test_bad_exclusions(self, api: Api, value: Any, detail: str) -> None:
        made = api.experiment()
        for error in (refused(api, excluded_variants=value), refuse(api, made, excluded_variants=value)):
            assert (error["attr"], error["detail"]) == ("excluded_variants", detail)
        error = refused(api, parameters={"excluded_variants": value})
        assert (error["attr"], error["detail"]) == ("parameters", detail)

    @rule("3.5.4", "3.5.5")
    def test_exclusions(self, api: Api) -> None:
        three = {"feature_flag_variants": variants(control=40, a=30, b=30)}
        made = api.experiment("a", parameters=three, excluded_variants=["b"])
        assert made["excluded_variants"] == ["b"]
        assert patch(api, made, excluded_variants=[])["excluded_variants"] == []
        inside = api.experiment("b", parameters=three | {"excluded_variants": ["a"]})
        assert (inside["excluded_variants"], inside["parameters"]["excluded_variants"]) == (["a"], ["a"])
        baseline = {"method": "bayesian", "baseline_variant_key": "a"}
        moved = api.experiment("c", parameters=three, stats_config=baseline, excluded_variants=["control"])
        assert moved["excluded_variants"] == ["control"]


class TestStatsConfig:
    @rule("3.6.1")
    def test_method_and_baseline(self, api: Api) -> None:
        made = api.experiment()
        for config, detail in (
            ({"method": "x"}, "Invalid stats method: 'x'. Must be one of: bayesian, frequentist"),
            (
                {"method": "bayesian", "baseline_variant_key": "x"},
                "Invalid baseline_variant_key: 'x'. Must be one of: control, test",
            ),
        ):
            for error in (refused(api, stats_config=config), refuse(api, made, stats_config=config)):
                assert (error["attr"], error["detail"]) == (None, detail)

    @rule("3.6.2", "3.6.4")
    def test_defaults_and_changes(self, api: Api) -> None:
        assert api.experiment("a", stats_config=None)["stats_config"] == {"method": "bayesian"}
        more = {"version": 2, "cuped": {"enabled": True, "lookback_days": 14}}
        made = api.experiment("b", stats_config=more)
        assert made["stats_config"] == more | {"method": "bayesian"}
        for sent in ({"version": 2}, {}, None):
            assert patch(api, made, stats_config=sent)["stats_config"] == sent

    @rule("3.6.3")
    def test_the_baseline_stays_a_variant(self, api: Api) -> None:
        made = api.experiment(stats_config={"method": "bayesian", "baseline_variant_key": "test"})
        change = {"feature_flag_variants": variants(control=50, other=50)}
        error = refuse(api, made, parameters=change)
        assert error["detail"] == "Invalid baseline_variant_key: 'test'. Must be one of: control, other"
        assert shares(read(api, made)) == {"control": 50, "test": 50}


HINT = (
    "Expected either an event-based config like {'kind': 'ExperimentEventExposureConfig', 'event': '<event_name>', "
    "'properties': []} or an action-based config like {'kind': 'ActionsNode', 'id': <action_id>}."
)


class TestExposureCriteria:
    @rule("3.7.1")
    def test_test_accounts(self, api: Api) -> None:
        for number, sent in enumerate((None, {}, {"filterTestAccounts": None})):
            made = api.experiment(f"flag-{number}", exposure_criteria=sent)
            assert made["exposure_criteria"] == {"filterTestAccounts": True}
        kept = {"filterTestAccounts": False, "multiple_variant_handling": "first_seen", "other": 1}
        made = api.experiment(exposure_criteria=kept)
        assert made["exposure_criteria"] == kept
        assert patch(api, made, exposure_criteria={})["exposure_criteria"] == {}

    @rule("3.7.2")
    def test_configurations(self, api: Api) -> None:
        viewed = api.ok("POST", "/actions/", {"name": "Viewed"}, status=201)["id"]
        for number, config in enumerate(
            (
                {"kind": "ExperimentEventExposureConfig", "event": "viewed", "properties": []},
                {"event": "viewed", "properties": [{"key": "a", "value": 1, "type": "event"}]},
                {"kind": "ActionsNode", "id": viewed, "name": "Viewed"},
                None,
            )
        ):
            made = api.experiment(f"flag-{number}", exposure_criteria={"exposure_config": config})
            assert made["exposure_criteria"]["exposure_config"] == config

    @rule("3.7.3")
    @pytest.mark.parametrize(
        ("value", "detail"),
        [
            (
                [],
                (
                    "exposure_criteria must be an object, got list. "
                    "Expected shape: {'filterTestAccounts': <bool>, 'exposure_config': <object>}."
                ),
            ),
            (
                {"filterTestAccounts": "yes"},
                "exposure_criteria.filterTestAccounts must be a boolean, got str: 'yes'.",
            ),
            (
                {"exposure_config": "x"},
                f"exposure_criteria.exposure_config must be an object, got str. {HINT}",
            ),
            (
                {"exposure_config": {"kind": "X"}},
                (
                    "exposure_criteria.exposure_config.kind must be one of ['ExperimentEventExposureConfig', "
                    f"'ActionsNode'], got 'X'. {HINT}"
                ),
            ),
        ],
    )
    def test_malformed(self, api: Api, value: Any, detail: str) -> None:
        error = refused(api, exposure_criteria=value)
        assert (error["attr"], error["detail"]) == ("exposure_criteria", detail)

    @rule("3.7.3")
    @pytest.mark.parametrize(
        ("config", "kind"),
        [
            ({"properties": []}, "ExperimentEventExposureConfig"),
            ({"event": "e"}, "ExperimentEventExposureConfig"),
            ({"event": "e", "properties": [], "extra": 1}, "ExperimentEventExposureConfig"),
            ({"kind": "ActionsNode"}, "ActionsNode"),
            ({"kind": "ActionsNode", "id": "5"}, "ActionsNode"),
        ],
    )
    def test_malformed_shapes(self, api: Api, config: Any, kind: str) -> None:
        error = refused(api, exposure_criteria={"exposure_config": config})
        assert error["attr"] == "exposure_criteria"
        assert error["detail"].startswith(f"Invalid exposure_criteria.exposure_config (kind='{kind}'): [")
