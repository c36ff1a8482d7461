"""Figures as people read them: with unit, interval and the number of units they rest on."""

from .estimate import Estimate

MISSING = "n/a"


def number(value: float, unit: str = "") -> str:
    """Format one figure: shares with three decimals, the rest as its unit asks.

    >>> number(0.8433), number(16.42, "dB"), number(47.66, "tokens"), number(123456, "bytes")
    ('0.843', '16.42', '47.7', '123.5 kB')
    """
    match unit:
        case "bytes":
            return _bytes(value)
        case "tokens" | "s":
            return f"{value:z.1f}"
        case "canaries":  # counts, but for means over seeds
            return f"{value:z.0f}" if value == int(value) else f"{value:z.1f}"
        case "dB":
            return f"{value:z.2f}"
        case _:
            return f"{value:z.3f}" if abs(value) < 100 else f"{value:,.0f}"


def interval(ends: tuple[float, float] | None, unit: str = "") -> str:
    """Format an interval.

    >>> interval((0.8, 0.88)), interval(None)
    ('[0.800, 0.880]', 'no interval')
    """
    return f"[{number(ends[0], unit)}, {number(ends[1], unit)}]" if ends else "no interval"


def basis(estimate: Estimate) -> str:
    """Say what an estimate rests on, and what its interval draws as a whole.

    >>> basis(Estimate(0.8, None, None, n=300, seeds=(0, 1, 2), rule="none"))
    'n = 300, 3 seeds'
    """
    count = len(estimate.seeds)
    seeds = f"{count} seeds" if count > 1 else f"seed {estimate.seeds[0]}" if count else ""
    seeds = "seed not recorded" if estimate.seeds == (None,) else seeds
    drawn = f" by {estimate.clustered_by}" if estimate.clustered_by else ""
    return ", ".join(filter(None, (f"n = {estimate.n:,}{drawn}", seeds)))


def with_interval(estimate: Estimate | None, unit: str = "") -> str:
    """Format a figure with its interval and n.

    >>> with_interval(Estimate(16.4, 16.1, 16.7, n=250, seeds=(0,), rule="within one seed"), "dB")
    '16.40 dB [16.10, 16.70] (n = 250, seed 0)'
    """
    if estimate is None:
        return MISSING
    shown = number(estimate.value, unit) + (" dB" if unit == "dB" else "")
    return f"{shown} {interval(estimate.interval, unit)} ({basis(estimate)})"


def _bytes(value: float) -> str:
    for prefix in ("", "k", "M", "G", "T"):
        if abs(value) < 1000 or prefix == "T":
            return f"{value:.0f} B" if not prefix else f"{value:.1f} {prefix}B"
        value /= 1000
    raise AssertionError("unreachable: the last prefix returns")
