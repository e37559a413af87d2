"""Verdict in plain words: one sentence, the reasons, and the next step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hoglab.statistics.verdict.guardrail_words import (
    about_guardrails,
    harmed_guardrails,
    not_shown_safe_headline,
    show_safety,
)
from hoglab.statistics.verdict.harm import HARM_LEVEL
from hoglab.statistics.verdict.model import (
    Action,
    Case,
    Decision,
    Judged,
    NextAction,
    Reason,
    State,
    VariantVerdict,
)
from hoglab.statistics.verdict.past_words import about_the_past
from hoglab.statistics.verdict.planned import DEFAULT_EFFECT, PlanSource, Progress
from hoglab.statistics.verdict.statements import (
    Statement,
    clear_statements,
    clearest_first,
    counted,
    gains_of,
    joined,
    losses_of,
    of_primary,
    secondary_losses_of,
    written_effect,
)

_FIXES = {
    "sample_ratio_mismatch": Action.FIX_ASSIGNMENT,
    "variant_without_exposures": Action.FIX_ASSIGNMENT,
    "multiple_variants": Action.FIX_ASSIGNMENT,
    "flag_deleted": Action.FIX_FLAG,
    "flag_inactive": Action.FIX_FLAG,
    "flag_reaches_nobody": Action.FIX_FLAG,
    "no_exposures": Action.FIX_EXPOSURES,
    "exposures_not_computable": Action.FIX_EXPOSURES,
    "metric_not_computable": Action.FIX_METRIC,
    "metric_failed": Action.FIX_METRIC,
    "denominator_imbalance": Action.FIX_METRIC,
}
"""Actions by the code of the critical finding that they repair."""


def headline(judged: Judged) -> str:
    """Return the verdict in one or two sentences."""
    case, variants = judged.case, judged.variants
    said = clear_statements(case, judged.metrics)
    match judged.state:
        case State.INVALID:
            return f"Do not decide. {case.invalidating[0].message}"
        case State.RUNNING | State.WORSE if judged.harmful:
            losses = [f"“{variant}” does harm: {losses_of(variant, said)}" for variant in judged.harmful]
            return f"{'; '.join(losses)}. That is certain, whatever the plan says."
        case State.RUNNING | State.INCONCLUSIVE if judged.held_back:
            return _held_back_headline(judged, said)
        case State.RUNNING if case.progress.is_reached:
            return f"Nothing is clear yet{_possible(case) or ': no primary metric has statistics'}."
        case State.RUNNING:
            return f"Running {_so_far(case.progress)}."
        case State.BETTER:
            leaders = clearest_first(judged.leaders, said)
            if len(leaders) == 1:
                return f"“{leaders[0]}” does better on {gains_of(leaders[0], said)}."
            gains = [f"“{variant}” on {gains_of(variant, said)}" for variant in leaders]
            return (
                f"{len(leaders)} variants do better than “{case.baseline}”, and are not told apart: "
                f"{joined(gains)}."
            )
        case State.WORSE:
            worst = of_primary(said, Decision.WORSE)
            if len(variants) == 1:
                return f"“{variants[0].variant}” does worse on {joined([statement.numbers for statement in worst])}."
            return (
                "All variants do worse: "
                + joined([f"“{statement.evidence.variant}” on {statement.numbers}" for statement in worst])
                + "."
            )
        case State.NOT_SHOWN_SAFE:
            return not_shown_safe_headline(judged, said)
        case State.MIXED:
            return _mixed_headline(variants, said)
        case State.INCONCLUSIVE:
            return _inconclusive_headline(case, said)


def action(judged: Judged) -> NextAction:
    """Return the recommended next action."""
    case = judged.case
    baseline = f"“{case.baseline}”"
    has_primary = any(metric.is_primary for metric in case.metrics)
    match judged.state:
        case State.INVALID:
            first = case.invalidating[0]
            return NextAction(_FIXES.get(first.code, Action.FIX), first.advice)
        case State.BETTER:
            leaders = clearest_first(judged.leaders, clear_statements(case, judged.metrics))
            if len(leaders) == 1:
                losses = secondary_losses_of(leaders[0], clear_statements(case, judged.metrics))
                text = f"Ship “{leaders[0]}”." + (f" {losses}" if losses else "")
                return NextAction(Action.SHIP_VARIANT, text, leaders[0])
            return NextAction(
                Action.CHOOSE_VARIANT,
                f"Ship one of {joined([f'“{variant}”' for variant in leaders])}: each is better than {baseline}, and "
                "which is the best of them is not clear. Choose by cost, or test them against each other.",
            )
        case State.RUNNING | State.WORSE if judged.harmful:
            return _stop_for_harm(judged)
        case State.WORSE:
            return NextAction(Action.KEEP_BASELINE, f"End the experiment and keep {baseline}.", case.baseline)
        case State.NOT_SHOWN_SAFE:
            return NextAction(Action.SHOW_SAFETY, show_safety(judged))
        case State.MIXED if harmed := harmed_guardrails(judged):
            variants = joined(
                [f"“{key}”" for key in dict.fromkeys(evidence.variant for _, evidence in harmed)]
            )
            names = joined([f"“{name}”" for name in dict.fromkeys(metric.name for metric, _ in harmed)])
            return NextAction(
                Action.DO_NOT_SHIP,
                f"Do not ship {variants}: find out what harms {names}, repair it, and test again.",
            )
        case State.MIXED:
            return NextAction(
                Action.WEIGH,
                "Weigh the gain against the loss; no variant is better on all that was measured.",
            )
        case _ if not has_primary:
            return NextAction(Action.ADD_METRIC, "Add a primary metric: it is what decides.")
        case _ if judged.held_back:
            names = joined([f"“{name}”" for name in _unknown(judged)])
            return NextAction(
                Action.FIX_METRIC,
                f"Find out why there are no statistics of {names}, or make it a secondary metric; do not ship before.",
            )
        case State.RUNNING if case.progress.is_reached:
            return NextAction(
                Action.WRITE_PLAN,
                "Decide how long it runs: write down the smallest change worth finding, or a running time. Nobody has, "
                f"and the default, a change of {DEFAULT_EFFECT:.0%} and two weeks, is no reason to stop.",
            )
        case State.RUNNING:
            return NextAction(Action.KEEP_RUNNING, _keep_running(case))
        case State.INCONCLUSIVE:
            if case.progress.is_reached:
                text = f"End it and keep {baseline}, or plan another experiment for a smaller effect."
            else:
                text = f"Keep {baseline}, or run it again for as long as planned."
            return NextAction(Action.STOP, text)


def reasons(judged: Judged) -> Iterator[Reason]:
    """Yield the reasons of the verdict: the numbers, how they were read, and what to be careful with."""
    case = judged.case
    concerns = [Reason(problem.code, problem.message, problem.metric_uuid) for problem in case.critical]
    if judged.state is State.INVALID:
        yield from concerns
        yield from about_the_past(case)
        return
    said = clear_statements(case, judged.metrics)
    yield from (finding.reason for finding in said)
    yield from concerns
    yield from _about_missing(case)
    yield from about_guardrails(judged)
    yield from _about_harm(judged)
    yield from _about_the_end(case, judged.state)
    yield _about_the_method(case)
    yield from _about_several(judged)
    yield from about_the_past(case)
    yield from _about_errors(case)


def _about_missing(case: Case) -> Iterator[Reason]:
    if not any(metric.is_primary for metric in case.metrics):
        yield Reason("no_primary_metric", "The experiment has no primary metric, so nothing decides it.")
    for metric in case.metrics:
        for variant in metric.variants:
            if variant.interval is None and metric.uuid not in case.withheld:
                why = f": {variant.problem}" if variant.problem else ""
                text = f"“{metric.name}” has no statistics for “{variant.variant}”{why}."
                yield Reason("no_statistics", text, metric.uuid, variant.variant)


def _about_the_end(case: Case, state: State) -> Iterator[Reason]:
    progress = case.progress
    if progress.is_reached:
        end = "The default end" if progress.source is PlanSource.DEFAULT else "What was planned"
        yield Reason("planned_end_reached", f"{end} is reached: it ran {_so_far(progress)}.")
        if case.as_of is not None:
            yield Reason(
                "decided_at_planned_end",
                f"It is decided by what was known at the end of {case.as_of:%Y-%m-%d}, when that was reached; what "
                f"came later does not count for {'the last analysis' if case.analyses_planned else 'a single look'}.",
            )
    elif case.has_ended:
        yield Reason("stopped_early", f"It was stopped before its planned end: it ran {_so_far(progress)}.")
    elif state is not State.RUNNING:  # else the headline says it
        yield Reason("planned_end_ahead", f"It has run {_so_far(progress)}.")
        if case.as_of is not None:
            yield Reason(
                "decided_at_analysis",
                f"It is decided by what was known at the end of {case.as_of:%Y-%m-%d}, at planned analysis "
                f"{case.analyses_done} of {case.analyses_planned}; what came later does not count.",
            )
    if progress.exposed is not None and progress.exposed > progress.people:
        yield Reason(
            "people_not_counted_yet",
            f"The plan counts the {counted(progress.people, 'person', 'people')} whom every primary metric counts so "
            f"far, of {progress.exposed:,} exposed.",
        )
    if progress.source is PlanSource.DEFAULT:
        yield Reason(
            "default_plan",
            f"Nobody wrote down how long it runs, or which change is worth finding: {DEFAULT_EFFECT:.0%} and two weeks "
            "are taken.",
        )
    if progress.source is PlanSource.OWN_VARIANCE and not case.is_sequential:
        yield Reason(
            "planned_from_own_variance",
            "No running time was written down with the experiment: how long it takes is planned from the variance of "
            "all groups together.",
        )


def _about_the_method(case: Case) -> Reason:
    if case.analyses_planned is not None:
        done = f"{case.analyses_done} of {case.analyses_planned}"
        return Reason(
            "planned_analyses",
            f"The method is group sequential: it decides at planned analyses and not between them. {done} "
            f"{'is' if case.analyses_done == 1 else 'are'} made; all of them share one error rate.",
        )
    if case.config.is_hybrid:
        return Reason(
            "hybrid",
            "The method is hybrid: it may be read, and stopped, at any time until the planned end, and is read once "
            "there; both share one error rate.",
        )
    if case.is_sequential:
        return Reason(
            "reads_at_any_time", "The method is sequential: it may be read, and stopped, at any time."
        )
    if case.may_decide:
        text = "The method is for a single look, at the planned end."
    else:
        text = (
            "The method is for a single look, at the planned end: stopping at the first good day "
            "gives a wrong result far more often than the method promises."
        )
    return Reason("single_look", text)


def _about_harm(judged: Judged) -> Iterator[Reason]:
    for variant in judged.harmful:
        yield Reason(
            "harm",
            f"“{variant}” is certainly worse than “{judged.case.baseline}”: a test that may be read at any time, and "
            f"is wrong in at most {HARM_LEVEL:.0%} of experiments over all watched comparisons together, says so.",
            variant=variant,
        )


def _stop_for_harm(judged: Judged) -> NextAction:
    baseline = judged.case.baseline
    names = joined([f"“{variant}”" for variant in judged.harmful])
    if len(judged.harmful) == len(judged.variants):
        return NextAction(
            Action.STOP_FOR_HARM,
            f"Stop now: {names} does harm. End the experiment and keep “{baseline}”."
            if len(judged.harmful) == 1
            else f"Stop now: {names} do harm. End the experiment and keep “{baseline}”.",
            baseline,
        )
    return NextAction(
        Action.STOP_FOR_HARM,
        f"Show {names} to nobody any more: switch the flag off or end the experiment; the others can be tested again.",
    )


def _about_several(judged: Judged) -> Iterator[Reason]:
    case = judged.case
    better = [f"“{verdict.variant}”" for verdict in judged.variants if verdict.state is State.BETTER]
    if len(better) > 1:
        leaders = [f"“{variant}”" for variant in judged.leaders]
        beaten = [name for name in better if name not in leaders]
        parts = [f"{joined(better)} are all better than “{case.baseline}”, and were compared with each other"]
        if beaten:
            parts.append(f"another of them is clearly better than {joined(beaten)}")
        if len(leaders) > 1:
            parts.append(f"{joined(leaders)} are not told apart")
        yield Reason("several_better", f"{'; '.join(parts)}.")


def _about_errors(case: Case) -> Iterator[Reason]:
    """Yield how often the verdict errs, by its own rules; docs/statistics.md counts it in simulated experiments."""
    count = sum(len(metric.variants) for metric in case.metrics if metric.is_primary)
    if not count:
        return
    looks = ", however often it is read" if case.is_sequential else ""
    if case.analyses_planned is not None:
        looks = ", over all planned analyses together"
    together = f" over all {count} comparisons together (Holm)" if count > 1 else ""
    text = (
        f"Without any effect a variant is called better in at most {case.shipping_level:.1%} of "
        f"experiments{together}{looks}."
    )
    if case.is_amended:
        text += " That holds only if no amendment of the plan was made because of the results."
    if any(metric.margin for metric in case.metrics):
        text += f" One that harms a guardrail by its margin ships in at most {1 - case.level:.0%}."
    yield Reason("error_rates", text)


def _mixed_headline(variants: Sequence[VariantVerdict], said: Sequence[Statement]) -> str:
    mixed = {statement.variant for statement in variants if statement.state is State.MIXED}
    lead = of_primary(
        [statement for statement in said if statement.evidence.variant in mixed], Decision.BETTER
    )[0]
    key = lead.evidence.variant
    parts = {
        decision: joined(
            [
                f"“{statement.metric.name}” ({statement.effect})"
                for statement in said
                if statement.evidence.variant == key
                and statement.decision is decision
                and (
                    statement.metric.is_primary
                    or (statement.metric.is_guardrail and decision is Decision.WORSE)
                )
            ]
        )
        for decision in (Decision.BETTER, Decision.WORSE)
    }
    return f"“{key}” does better on {parts[Decision.BETTER]}, but worse on {parts[Decision.WORSE]}."


def _inconclusive_headline(case: Case, said: Sequence[Statement]) -> str:
    if not case.progress.is_reached:
        return f"Stopped too early to decide: it ran {_so_far(case.progress)}."
    possible = _possible(case)
    if possible is None:
        return "Nothing can be said: no primary metric has statistics."
    worse = [f"“{finding.evidence.variant}”" for finding in of_primary(said, Decision.WORSE)]
    also = f" {joined(list(dict.fromkeys(worse)))} does worse." if worse else ""
    return f"No clear winner{possible}.{also}"


def _possible(case: Case) -> str | None:
    """Write which differences on primary metrics are unlikely, behind a statement; None without statistics."""
    bounds, unbounded = [], []
    for metric in case.metrics:
        if not metric.is_primary:
            continue
        if any(variant.is_unbounded for variant in metric.variants):
            unbounded.append(f"“{metric.name}”")
            continue
        largest = [
            variant.largest_difference
            for variant in metric.variants
            if variant.largest_difference is not None
        ]
        if largest:
            bound = written_effect(case, metric, max(largest)).removeprefix("+")
            bounds.append(f"“{metric.name}” beyond ±{bound}")
    if bounds:
        return f": no difference on {joined(bounds)} is likely"
    if unbounded:
        return f", and no bound on the difference on {joined(unbounded)}: the baseline's value is not told from zero"
    return None


def _so_far(progress: Progress) -> str:
    """Describe the progress: ``for 6 of 15 days, with 3,210 of 8,000 people``."""
    days = counted(progress.days, "day") if progress.days else "less than a day"
    people = counted(progress.people, "person", "people")
    if progress.days_needed is not None and progress.days_needed > progress.days:
        done = f"{progress.days:,}" if progress.days else "less than one"
        days = f"{done} of {_about(progress)}{counted(progress.days_needed, 'day')}"
    if progress.people_remaining:
        people = f"{progress.people:,} of {counted(progress.people + progress.people_remaining, 'person', 'people')}"
    elif progress.people_needed is not None and not progress.is_reached:
        people = f"all of the {counted(progress.people_needed, 'person', 'people')} that it takes"
    unknown = progress.source is PlanSource.UNKNOWN and not progress.is_reached
    more = "; how many it takes cannot be said yet" if unknown else ""
    return f"for {days}, with {people}{more}"


def _about(progress: Progress) -> str:
    return "" if progress.days_needed == progress.least_days else "about "


def _keep_running(case: Case) -> str:
    days = case.progress.days_remaining
    wait = f"for about {counted(days, 'more day')}" if days is not None else "until more people have come"
    if case.analyses_planned is not None:
        following = f"the next of its {case.analyses_planned} planned analyses"
        return f"Keep it running {wait}, or until {following} decides; what it shows between them decides nothing."
    if case.is_sequential:
        return f"Keep it running {wait}, or until something is clear."
    return f"Keep it running {wait}, and do not decide by what it shows before."


def _unknown(judged: Judged) -> list[str]:
    """Return the names of deciding metrics without statistics about a variant that would be better."""
    return list(
        dict.fromkeys(
            metric.name
            for metric in judged.metrics
            if metric.decides
            for decided in metric.variants
            if decided.decision is Decision.MISSING and decided.variant in judged.held_back
        )
    )


def _held_back_headline(judged: Judged, said: Sequence[Statement]) -> str:
    clearest = clearest_first(judged.held_back, said)[0]
    names = [f"“{name}”" for name in _unknown(judged)]
    return f"“{clearest}” does better on {gains_of(clearest, said)}, but there are no statistics of {joined(names)}."
