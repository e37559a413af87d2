"""Numbers as people read them."""

from __future__ import annotations

from math import isfinite

MISSING = "–"


def effect_text(
    effect: float, *, relative: bool, is_share: bool = False, baseline: float | None = None
) -> str:
    """Write an effect with its sign, or 0: in percent when it is a share of the baseline.

    A difference of shares is in percentage points. A negative mean of the ``baseline`` is named beside a relative
    effect, whose sign is then not that of the difference: ``-25.0% of -2``.
    """
    if relative and baseline is not None and baseline < 0 and effect != 0:
        return f"{effect:+.1%} of {number_text(baseline)}"
    unit = "%" if relative else " pp" if is_share else ""
    if effect == 0:
        return f"0{unit}"
    if relative:
        return f"{effect:+.1%}"
    return f"{effect * 100:+.3g}{unit}" if is_share else f"{effect:+.4g}"


def interval_text(interval: tuple[float, float], *, relative: bool, is_share: bool = False) -> str:
    """Write both bounds of an effect's interval; of one without a bound on a side, the other and the direction."""
    low, high = (effect_text(bound, relative=relative, is_share=is_share) for bound in interval)
    match [isfinite(bound) for bound in interval]:
        case [True, True]:
            return f"{low} … {high}"
        case [True, False]:
            return f"{low} or more"
        case [False, True]:
            return f"{high} or less"
        case _:
            return "no bounds"


def number_text(number: float | None) -> str:
    """Write a total or a mean: whole numbers in full, others with four significant digits or all before the point."""
    if number is None:
        return MISSING
    if number == round(number) and abs(number) < 1e15:
        return f"{number:,.0f}"
    return f"{number:,.0f}" if abs(number) >= 10_000 else f"{number:,.4g}"


def mean_text(mean: float | None, *, is_share: bool) -> str:
    """Write a metric's mean: in percent when it is a share of a variant's people."""
    return f"{mean:.2%}" if is_share and mean is not None else number_text(mean)


def p_text(p_value: float) -> str:
    """Write a p-value with its sign of relation: ``p = 0.012``; a very small one, or one near 1, as a bound."""
    if p_value > 0.99:
        return "p > 0.99"
    return "p < 0.0001" if p_value < 0.0001 else f"p = {p_value:.2g}"


def percent_text(share: float) -> str:
    """Write a probability in percent. One that is not certain never reads as 0 or 100."""
    text = f"{share:.1%}"
    if text == "100.0%" and share < 1:
        return "> 99.9%"
    return "< 0.1%" if text == "0.0%" and share > 0 else text
