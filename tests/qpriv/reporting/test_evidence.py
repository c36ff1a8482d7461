"""Which figure counts: the last epoch, the test split, one condition, one attack setting."""

import json
from pathlib import Path

import pytest

from qpriv.errors import DataError
from qpriv.reporting import write_report
from qpriv.reporting.claims.comparison import strongest
from qpriv.reporting.condition import Condition, headline
from qpriv.reporting.evidence import Evidence
from qpriv.reporting.run_folder import Run, find_runs, read_run
from qpriv.reporting.tables import attack_tables, other_table, paradigm_table, policy_table

from . import fakes
from .fakes import result


def gathered(*rows, tags=None, folder="run") -> Evidence:
    return Evidence.of([Run(folder=folder, results=tuple(rows), tags=tags or {})])


def test_the_last_epoch_counts():
    rows = [result("accuracy", value, epoch=epoch) for epoch, value in enumerate((0.5, 0.7, 0.6))]
    assert gathered(*rows).figures[0].estimate.value == 0.6


def test_the_test_split_counts_before_any_other():
    rows = [
        result("accuracy", 0.5, dataset="FaceScenes/test", epoch=1),
        result("accuracy", 0.9, dataset="FaceScenes/validation", epoch=2),
    ]
    held = gathered(*rows)
    figure = held.figures[0]
    assert figure.estimate.value == 0.5
    assert {epoch: e.value for epoch, e in held.history(figure).items()} == {2: 0.9}


def test_two_attack_settings_are_two_figures():
    rows = [
        result("attack/membership/auc", value, attack={"query_policy": query, "steps": 9})
        for query, value in (("same", 0.9), ("off", 0.7))
    ]
    held = gathered(*rows, result("kept_tokens", 64.0))
    assert len(held.named("attack/membership/auc")) == 2


def test_a_budget_that_grows_with_epochs_is_one_figure():
    rows = [
        result(
            "attack/supervised_inversion/psnr",
            17.0 + epoch,
            epoch=epoch,
            attack={"cut": 4, "steps": 100 * epoch},
        )
        for epoch in range(3)
    ]
    figures = gathered(*rows).named("attack/supervised_inversion/psnr")
    assert len(figures) == 1 and figures[0].estimate.value == 19.0


def test_tags_tell_conditions_apart_and_stand_in_their_label():
    held = gathered(result("accuracy", 0.5, policy="dtp(fused)"), tags={"utility": "random"})
    assert [c.label for c in held.conditions] == ["dtp(fused) · utility random"]


def test_what_has_no_policy_is_known_by_its_stage(tmp_path):
    for stage in ("teacher", "student"):
        folder = tmp_path / f"{stage}-seed0"
        fakes.write_run(folder, [result("val/loss", 0.5, policy="")], tags={})
        (folder / "cell.json").write_text(f'{{"study": "s", "stage": "{stage}"}}')
    alone = fakes.write_run(tmp_path / "alone", [result("val/loss", 0.5, policy="")])
    held = Evidence.of(read_run(folder) for folder in find_runs([tmp_path]))
    assert sorted(c.label for c in held.conditions) == ["alone", "student", "teacher"]
    assert alone.name == "alone"


def test_data_sets_are_kept_apart():
    held = gathered(
        result("accuracy", 0.5), result("accuracy", 0.9, dataset="EasyVQA/test"),
        result("kept_tokens", 64.0),
    )  # fmt: skip
    assert held.datasets == ["FaceScenes", "EasyVQA"]
    table = policy_table(held.within("EasyVQA"), "EasyVQA")
    assert [cell.text for cell in table.rows[0].cells] == ["0.900"]


def test_figures_of_no_named_data_set_stand_with_the_others_and_yield_to_them():
    rows = [
        result("accuracy", 0.5),
        result("bytes_up", 700.0, unit="bytes"),
        result("bytes_up", 900.0, unit="bytes", dataset=""),
        result("bytes_down", 900.0, unit="bytes", dataset=""),
    ]
    held = gathered(*rows)
    assert held.datasets == ["FaceScenes"]
    table = policy_table(held.within("FaceScenes"), "FaceScenes")
    assert [cell.text for cell in table.rows[0].cells] == ["0.500", "700 B", "900 B"]


def test_paradigms_show_bytes_a_sample_and_an_epoch_beside_accuracy():
    sizes = {"bytes_up": 700.0, "bytes_down": 300.0, "bytes_padding": 90.0, "bytes_epoch": 64e3}
    rows = [result("accuracy", 0.5), result("accuracy", 0.4, paradigm="u_shaped")]
    rows += [result(n, v, unit="bytes", paradigm="u_shaped") for n, v in sizes.items()]
    table = paradigm_table(gathered(*rows), "FaceScenes")
    assert [column.name for column in table.columns] == ["accuracy", *sizes]
    cells = [[cell.text for cell in row.cells] for row in table.rows]
    assert cells[1] == ["0.400", "700 B", "300 B", "90 B", "64.0 kB"]


def test_the_mean_ratio_is_counted_against_no_pruning():
    held = gathered(
        result("kept_tokens", 64.0, unit="tokens"),
        result("kept_tokens", 48.0, unit="tokens", policy="dtp(fused)"),
    )
    assert held.mean_ratio(Condition("dtp(fused)")) == {0: pytest.approx(0.25)}
    assert held.mean_ratio(Condition("random(0.5)")) == {}


def test_conditions_come_in_a_readers_order():
    policies = ["random(0.5)", "dtp(fused)", "fixed(0.9,fused)", "fixed(0.3,fused)", "off"]
    held = gathered(*(result("accuracy", 0.5, policy=policy) for policy in policies))
    ordered = [c.policy for c in held.conditions]
    assert ordered == ["off", "fixed(0.3,fused)", "fixed(0.9,fused)", "dtp(fused)", "random(0.5)"]
    assert [c.policy for c in headline(held.conditions)] == ["off", "dtp(fused)"]


@pytest.mark.parametrize("label", ["", "??", "my policy (v2)", "fixed()"])
def test_a_label_of_another_form_is_a_name(label):
    condition = Condition(label)
    assert condition.rank_by == "" and condition.label == label
    assert isinstance(condition.order, tuple)


def test_cells_without_a_figure_say_why():
    rows = [
        result("accuracy", 0.5, half=0.1),
        result("sensitivity_exclusion_ratio", None, status="not applicable"),
        result("accuracy", 0.4, policy="dtp(fused)"),
        result("bytes_up", None, unit="bytes", policy="dtp(fused)", status="failed", note="why"),
    ]
    table = policy_table(gathered(*rows), "FaceScenes")
    cells = {row.header: [cell.text for cell in row.cells] for row in table.rows}
    assert [c.name for c in table.columns] == [
        "accuracy",
        "sensitivity_exclusion_ratio",
        "bytes_up",
    ]
    assert cells == {"off": ["0.500", "n/a", ""], "dtp(fused)": ["0.400", "", "failed"]}
    assert table.rows[1].marks == ("failed: why",)
    assert table.rows[1].cells[0].interval == "no interval"


def test_run_folders_are_found_inside_a_study(tmp_path):
    fakes.write_run(tmp_path / "study" / "a", [result("accuracy", 0.5)])
    fakes.write_run(tmp_path / "study" / "b", [result("accuracy", 0.5)])
    write_report([tmp_path / "study"], tmp_path / "study")  # its merged results are no run
    (tmp_path / "study" / "b" / "config.yaml").unlink()
    (tmp_path / "study" / "latest").symlink_to("a")
    assert [run.name for run in find_runs([tmp_path / "study"])] == ["a", "b"]
    assert find_runs([tmp_path / "study" / "a"] * 2) == [tmp_path / "study" / "a"]


def test_training_losses_are_epoch_means_of_the_logged_steps(tmp_path):
    lines = [
        {"epoch": 0, "step": 1, "train/loss": 2.0},
        {"epoch": 0, "step": 2, "train/loss": 1.0},
        {"epoch": 0, "step": 2, "val/accuracy": 0.5},
        {"epoch": 1, "step": 3, "train/loss": None},
        {"epoch": 1, "step": 4, "train/loss": 0.5},
    ]
    folder = fakes.write_run(tmp_path, [result("accuracy", 0.5, policy="dtp(fused)", seed=3)])
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    losses = read_run(folder).training_losses
    assert [(r.epoch, r.value, r.n) for r in losses] == [(0, 1.5, 2), (1, 0.5, 1)]
    assert {(r.policy, r.seed) for r in losses} == {("dtp(fused)", 3)}
    held = Evidence.of([read_run(folder)])
    assert list(held.history(held.named("train/loss")[0])) == [0, 1]


def test_a_run_that_only_began_is_read_and_said_so(tmp_path):
    (tmp_path / "config.yaml").write_text("a: 1\n")
    run = read_run(tmp_path)
    assert run.results == () and run.config == "a: 1\n"
    assert run.problems == ("no results.jsonl: nothing was measured yet",)


def test_every_setting_is_a_figure_and_the_strongest_attacker_is_spoken_of():
    rows = [
        result(
            "attack/supervised_inversion/psnr_sensitive",
            value,
            policy=policy,
            attack={},
            setting={"steps": s},
        )
        for policy, s, value in (("off", 60, 17.0), ("off", 600, 22.0), ("dtp", 600, 14.0))
    ]
    held = gathered(*rows)
    assert len(held.named("attack/supervised_inversion/psnr_sensitive")) == 3
    assert strongest(held, "attack/supervised_inversion/psnr_sensitive") == {"steps": 600}
    (tables,) = attack_tables(held, "FaceScenes")
    assert [row.cells[0].text for row in tables.main.rows] == ["17.000", "22.000", "14.000"]
    assert len({(row.header, row.details) for row in tables.main.rows}) == 3


def test_two_runs_of_one_seed_are_told_apart_and_two_seeds_are_one_row():
    runs = [
        Run(folder=Path(name), stage=name, results=(result("accuracy", value, seed=seed),))
        for name, value, seed in (("a", 0.5, 0), ("b", 0.7, 1), ("c", 0.9, 0))
    ]
    assert [c.label for c in Evidence.of(runs[:2]).conditions] == ["off"]
    told = Evidence.of([runs[0], runs[2]])
    assert [c.label for c in told.conditions] == ["off · a", "off · c"]
    assert [f.estimate.value for f in told.named("accuracy")] == [0.5, 0.9]


def test_two_runs_of_one_stage_and_seed_must_agree():
    runs = [
        Run(folder=Path(name), stage="fit", results=(result("accuracy", value),))
        for name, value in (("a", 0.5), ("b", 0.9))
    ]
    with pytest.raises(DataError, match=r"0\.5 and 0\.9 \(in a and b\)"):
        Evidence.of(runs)


def test_channels_are_told_where_runs_were_trained_with_several():
    def run(channel, read):
        shared = {"paradigm": "split", "seed": 0}
        rows = (
            result("accuracy", 0.5, channel=channel, **shared),
            result("attack/supervised_inversion/psnr", 20.0, channel=read, **shared),
        )
        return Run(folder=Path(channel), stage=channel, results=rows)

    one = Evidence.of([run("up@4", "hypothetical:up@2")])
    assert [c.label for c in one.conditions] == ["off · split"]
    both = Evidence.of([run("up@4", "up@4"), run("up@4/int8", "up@4/int8")])
    assert [c.label for c in both.conditions] == ["off · split · up@4", "off · split · up@4/int8"]


def test_splits_are_figures_apart_and_all_are_shown():
    rows = [
        result("accuracy", 0.5, dataset="FaceScenes/test", epoch=1),
        result("accuracy", 0.9, dataset="FaceScenes/validation", epoch=2),
    ]
    held = gathered(*rows)
    table = policy_table(held, "FaceScenes")
    others = other_table(held, [table])
    assert [row.cells[0].text for row in (*table.rows, *others.rows)] == ["0.500", "0.900"]
