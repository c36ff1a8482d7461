"""While it runs a probe says how far it is; at its end it says three figures."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from callbacks import ForaProbe
from callbacks.probes import progress
from callbacks.probes.probe import Probe, Visit
from callbacks.probes.progress import Progress, closing_figures
from qpriv.result import Result
from tests.callbacks.victims import TinyData, TinyVictim


class Slow(Probe):
    """Has two stages of items, and steps within each."""

    name = "slow"

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        return [["first", "second"], ["third"]]

    def measure(self, item: str, visit: Visit) -> list[Result]:
        visit.watch(1, 4)
        return [Result(name="attack/slow/x", value=0.5, n=1, setting={"item": item})]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(progress, "rank_zero_info", lines.append)
    return lines


def test_stage_items_done_and_time_left_are_told_in_plain_lines(
    said: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    Slow().run_once(TinyVictim(), TinyData(), tmp_path, 0)
    assert any("slow: stage 1 of 2, first 25 %, 0 of 3 done, about " in line for line in said)
    assert any("slow: stage 2 of 2, third 25 %, 2 of 3 done, about " in line for line in said)
    assert all("\r" not in line for line in said)


def test_a_short_probe_tells_nothing_on_the_way(said: list[str], tmp_path: Path) -> None:
    Slow().run_once(TinyVictim(), TinyData(), tmp_path, 0)
    assert said == []


def test_on_a_terminal_one_line_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: list[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    shown = Progress("slow", [2])
    shown.begin("one")
    shown.end()
    shown.close()
    told = capsys.readouterr().err
    assert "slow: stage 1 of 1, one" in told and "\r" in told and said == []


def test_time_left_ends_with_the_budget() -> None:
    shown = Progress("slow", [1], deadline=0.0)
    shown._began = 0.0
    shown.step(1, 100)
    shown.deadline = 50.0
    assert shown.line(10.0).endswith("about 40 s left")  # not 990
    shown.deadline = float("inf")
    assert shown.line(10.0).endswith("about 16.5 min left")


def test_an_inverter_tells_its_steps_and_ends_with_three_figures_beside_their_baselines(
    said: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr("callbacks.probes.probe.rank_zero_info", lines.append)
    probe = ForaProbe(client="supervised", steps=2, batch_size=4, max_samples=8)
    probe.run_once(TinyVictim(), TinyData(), tmp_path, 0)
    assert any("supervised_inversion: stage 1 of 1, cut=4 50 %" in line for line in said)
    assert lines[-1].startswith("supervised_inversion: epoch 0, ")
    assert "Image PSNR " in lines[-1] and "(mean image " in lines[-1]
    figures = lines[-1].partition(" s: ")[2]
    assert len(figures.split(", ")) == 3


def test_of_several_results_of_a_name_the_largest_is_told() -> None:
    rows = [
        Result(name=f"attack/membership/{name}", value=value, n=9, setting={"query_policy": query})
        for query, auc in (("same", 0.7), ("off", 0.8))
        for name, value in (("auc", auc), ("blind_auc", auc - 0.3), ("balanced_accuracy", 0.6))
    ]
    told = closing_figures(
        [*rows, Result(name="attack/membership/rmia_auc", value=float("nan"), n=9)]
    )
    assert told.startswith("Membership AUC 0.800 (blind baseline 0.500)")
    assert "nan" not in told
