"""The table at the end of a command."""

from qpriv.reporting import format_table

from . import fakes
from .fakes import result


def test_the_table_holds_figures_intervals_and_what_to_hold_them_against():
    rows = [row for p in ("off", "fixed(0.5,fused)") for row in fakes.policy_results(p, seed=0)]
    table = format_table(rows)
    lines = table.splitlines()
    assert lines[0].split("  ")[0] == "policy"
    assert max(len(line) for line in lines) <= 115
    off = next(line for line in lines if line.startswith("off"))
    assert "n/a" in off and "*" in off and "64.0" in off
    assert "15.96 dB" in table and "0.507" in table and "short attacker" in table


def test_the_weaker_attackers_figure_does_not_hide_the_stronger_ones():
    rows = [
        result("attack/membership/auc", auc, policy="dtp(fused)", attack={"query_policy": query})
        for query, auc in (("off", 0.70), ("same", 0.95))
    ]
    assert "0.950" in format_table(rows) and "0.700" not in format_table(rows)


def test_failures_are_named():
    failed = result(
        "attack/supervised_inversion",
        None,
        status="failed",
        note="out of time",
        policy="dtp(fused)",
    )
    table = format_table([result("accuracy", 0.8, policy="dtp(fused)"), failed])
    assert "Failed: attack/supervised_inversion under dtp(fused)." in table


def test_nothing_measured_is_said():
    assert format_table([]) == "Nothing was measured yet."
