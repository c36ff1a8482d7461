"""Two probes that differ in one setting are two figures, from the probe to the page."""

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import count
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import callbacks
from callbacks.probes.probe import Probe, Visit
from cli.loggers import JsonLogger
from qpriv.errors import ConfigError, DataError
from qpriv.key import AttackSetting, plain
from qpriv.pruning.predictor import DynamicThresholdPredictor, PredictorConfig
from qpriv.reporting import write_report
from qpriv.reporting.compare import compare_runs
from qpriv.reporting.evidence import Evidence
from qpriv.reporting.run_folder import read_run
from qpriv.reporting.tables import attack_tables
from qpriv.result import Result, append_results, read_results

from ..toys import Toy, ToyData, fit

PROBES = [
    each
    for each in vars(callbacks).values()
    if isinstance(each, type) and issubclass(each, Probe) and each is not Probe
]
RUNNING = {"every_n_epochs", "on_error", "log_private", "audit_isolation"}
"""Arguments that say when a probe runs and what becomes of it, but not what it measures."""
CARRIED = {"ForaProbe": {"every_n_epochs"}, "FshaProbe": {"every_n_epochs"}}
"""Of probes that go on from epoch to epoch, how often they run is their budget."""

VALUES = count(101)  # shown as .101, .102 and so on


def trainer_of(probes: Sequence[Probe]) -> Any:
    return SimpleNamespace(callbacks=probes, strategy=None)


def stubbed(kind: type[Probe]) -> type[Probe]:
    """Return a probe that measures a number of its own; all else is the probe's."""
    name = "attack/{}/stub" if kind.__name__ != "SensitivityProbe" else "sensitive_tokens_kept"

    def measure(self: Any, item: str, visit: Visit) -> list[Result]:
        value = next(VALUES) / 1000
        self._value = value
        shown = Result(
            name=name.format(self.metric_prefix),
            value=value,
            n=9,
            ci=(value, value),
            dataset="Toys/private",
        )
        return [shown]

    def plan(self: Any, visit: Visit) -> Sequence[Sequence[str]]:
        return [["stub"]]

    stubs = {"measure": measure, "plan": plan, "require": lambda *_: None}
    # of another name: a configuration that names the probe must find one class of that name
    return type(f"Stubbed{kind.__name__}", (kind,), stubs)


def another(hint: Any, value: Any) -> Any:
    """Return another value of an argument."""
    if get_origin(hint) is Literal:
        return next(each for each in get_args(hint) if each != value)
    if get_origin(hint) is tuple:
        return (another(get_args(hint)[0], value[0] if value else None),)
    if get_origin(hint) is UnionType or "Union" in str(get_origin(hint)):
        kinds = [each for each in get_args(hint) if each is not type(None)]
        return another(kinds[0], value)
    if hint is bool:
        return not value
    if hint is int:
        return 7 if value is None else value + 1
    if hint is float:
        return 0.5 if not value else value * 2
    if hint is str:
        return "count"
    raise AssertionError(f"say what another {hint} is")


def variants(kind: type[Probe], folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each argument that matters, and a value that is not the default."""
    hints = get_type_hints(kind)
    for each in fields(kind):
        if each.name in RUNNING - CARRIED.get(kind.__name__, set()):
            continue
        if Path in get_args(hints[each.name]):
            yield each.name, {each.name: some_file(each.name, folder)}
        else:
            yield each.name, {each.name: another(hints[each.name], each.default)}


def some_file(argument: str, folder: Path) -> Path:
    """Return a file or folder that an argument can name."""
    folder.mkdir(parents=True, exist_ok=True)
    if argument == "predictor":
        DynamicThresholdPredictor(PredictorConfig(sensitivity_dim=5)).save_pretrained(
            folder / "predictor"
        )
        return folder / "predictor"
    contents: dict[str, Any] = {
        "baseline": ["a key"],
        "phrases": {
            "en": {"refusals": ["no"], "nonsense": ["?"], "premises": ["{thing}"], "things": ["x"]}
        },
    }
    path = folder / f"{argument}.json"
    path.write_text(json.dumps(contents[argument]))
    return path


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Probe]]:
    """Return one run in which every probe is there for every setting that matters."""
    folder = tmp_path_factory.mktemp("run")
    probes = [
        stubbed(kind)(**given)
        for kind in PROBES
        for given in [{}, *(given for _, given in variants(kind, folder / "files"))]
    ]
    fit(folder, probes, epochs=1, logger=JsonLogger(folder))
    (folder / "config.yaml").write_text("seed_everything: 0\n")
    return folder, probes


def test_both_figures_stand_in_the_results(probed: tuple[Path, list[Probe]]) -> None:
    folder, probes = probed
    results = read_results(folder / "results.jsonl")
    assert {result.status for result in results} == {"ok"}
    assert sorted(r.value for r in results) == sorted(probe._value for probe in probes)
    assert len({result.key for result in results}) == len(probes)


def test_both_figures_stand_in_the_metrics(probed: tuple[Path, list[Probe]]) -> None:
    folder, probes = probed
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    logged = {
        name: v for line in lines for name, v in line.items() if name not in ("epoch", "step")
    }
    assert sorted(logged.values()) == pytest.approx(sorted(p._value for p in probes))
    for name in logged:
        assert str(folder) not in name and name.count("/") <= 2 + name.count("=")


def test_both_figures_stand_on_the_page(probed: tuple[Path, list[Probe]], tmp_path: Path) -> None:
    folder, probes = probed
    page = write_report([folder], tmp_path).read_text()
    tables = attack_tables(Evidence.of([read_run(folder)]).within("Toys"), "Toys")
    cells = {cell.text for table in tables for row in table.main.rows for cell in row.cells}
    for probe in probes:
        told = f"{probe._value:.3f}"
        assert told in page
        assert told in cells or probe.name == "sensitivity"


def test_both_figures_stand_side_by_side(probed: tuple[Path, list[Probe]], tmp_path: Path) -> None:
    folder, probes = probed
    shutil.copytree(folder, tmp_path / "again")
    found = compare_runs(folder, tmp_path / "again")
    assert sorted(row.one.value for row in found.figures) == sorted(p._value for p in probes)
    assert all(row.difference is not None and row.difference.value == 0 for row in found.figures)
    titles = [line.split("  ")[0] for line in str(found).splitlines() if "Toys/private" in line]
    assert len(set(titles)) == len(probes)


@pytest.mark.parametrize("kind", PROBES)
def test_every_pair_is_told_apart_whatever_else_is_there(kind: type[Probe], tmp_path: Path) -> None:
    for name, given in variants(kind, tmp_path):
        pair = [stubbed(kind)(), stubbed(kind)(**given)]
        trainer = trainer_of(pair)
        for probe in pair:
            probe.setup(trainer, Toy(), "fit")
        results = [Result(name="x", value=1.0, n=1, setting=probe.setting) for probe in pair]
        first, second = (next(iter(p.metrics([r]))) for p, r in zip(pair, results, strict=True))
        # another attacker may have another name, and needs no more
        assert first != second or pair[0].metric_prefix != pair[1].metric_prefix, name
        assert results[0].key != results[1].key, name
        alone = stubbed(kind)(**given)
        alone.setup(trainer_of([alone]), Toy(), "fit")
        assert list(alone.metrics([results[1]])) == ["x"]  # short where nothing collides


def test_files_of_one_name_are_told_apart_by_what_is_in_them(tmp_path: Path) -> None:
    kind = stubbed(callbacks.IrrelevantQuestionProbe)
    paths = [some_file("phrases", tmp_path / name) for name in ("a", "b")]
    same = [kind(phrases=path) for path in paths]
    with pytest.raises(ConfigError, match="two probes measure the same figures"):
        same[0].setup(trainer_of(same), Toy(), "fit")
    paths[1].write_text(paths[1].read_text().replace("no", "never"))
    for probe in same:
        probe.setup(trainer_of(same), Toy(), "fit")
    settings = [probe.setting["phrases"] for probe in same]
    assert len(set(settings)) == 2 and str(tmp_path) not in "".join(map(str, settings))
    alone = kind(phrases=paths[0])
    alone.setup(trainer_of([alone]), Toy(), "fit")
    assert alone.setting["phrases"] == "phrases.json"


def test_what_a_probe_derives_from_its_arguments_is_in_no_key() -> None:
    probe = callbacks.ForaProbe(steps=3)
    names = {each.name for each in fields(probe)}
    assert set(probe.setting) < names
    assert "Training(" not in probe.state_key and "Alignment(" not in probe.state_key


class Varying(Probe):
    """Gives figures of one name, told apart by a cut or not at all."""

    name = "varying"

    def __init__(self, *, told: bool, **settings: Any) -> None:
        super().__init__(**settings)
        self._told_cuts = told

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        return [["cut=2", "cut=6"]]

    def measure(self, item: str, visit: Visit) -> list[Result]:
        cut = int(item[-1])
        setting = {"cut": cut} if self._told_cuts else {}
        value = math.nan if cut == 2 and visit.epoch else cut / 10
        return [Result(name="attack/varying/x", value=value, n=1, setting=setting)]


def test_a_metrics_name_does_not_depend_on_what_failed(tmp_path: Path) -> None:
    logger = JsonLogger(tmp_path)
    fit(tmp_path, [Varying(told=True)], epochs=2, logger=logger)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    found = [{k: v for k, v in line.items() if "attack" in k} for line in lines]
    assert [each for each in found if each] == [
        {
            "attack/varying/x/cut=2": pytest.approx(0.2),
            "attack/varying/x/cut=6": pytest.approx(0.6),
        },
        {"attack/varying/x/cut=6": pytest.approx(0.6)},
    ]


def test_a_probe_that_gives_a_figure_two_values_fails_and_names_both(tmp_path: Path) -> None:
    results = Varying(told=False).run_once(Toy(), ToyData(), tmp_path, 0)
    assert [r.value for r in results if r.status == "ok"] == [0.2]
    (failed,) = [r for r in results if r.status == "failed"]
    assert "0.2 and 0.6" in failed.note and failed.setting["item"] == "cut=6"


def figure(value: float | None, **given: Any) -> Result:
    return Result(name="attack/a/b", value=value, n=1, **{"seed": 0, "epoch": 1, **given})


def test_another_value_of_a_figure_is_an_error_that_names_both_lines(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append_results(path, [figure(0.5, epoch=0), figure(0.3)])
    with pytest.raises(DataError, match=r"0\.3 and 0\.9.*results.jsonl, line 2"):
        append_results(path, [figure(0.9)])
    append_results(path, [figure(0.3), figure(0.9, seed=1), figure(0.9, policy="dtp")])
    assert len(read_results(path)) == 4
    path.write_bytes(path.read_bytes() + path.read_bytes().replace(b'"value":0.3', b'"value":0.8'))
    with pytest.raises(DataError, match=r"0\.3 and 0\.8.*line 2 and .*line 6"):
        read_run(tmp_path)


def test_a_run_that_goes_on_replaces_its_own_lines(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append_results(path, [figure(0.3, measured_by="ForaProbe"), figure(0.1, epoch=0)])
    append_results(path, [figure(0.4, measured_by="ForaProbe")])
    assert [r.value for r in read_results(path)] == [0.1, 0.4]
    with pytest.raises(DataError, match=r"0\.4 and 0\.5"):
        append_results(path, [figure(0.5, measured_by="FshaProbe")])


def test_times_may_differ(tmp_path: Path) -> None:
    path = tmp_path / "clock.jsonl"
    for seconds in (3.0, 4.0):
        append_results(path, [figure(seconds, unit="s")])
    assert [r.value for r in read_results(path)] == [4.0]


def test_results_of_earlier_versions_are_told_by_what_their_attack_says(tmp_path: Path) -> None:
    old = '{"name":"attack/fora/psnr","value":%s,"n":9,"epoch":1,"attack":%s}\n'
    settings = [{"cut": 2, "steps": 60, "short": True}, {"cut": 6, "steps": 60, "short": True}]
    lines = [old % (n, json.dumps(each)) for n, each in enumerate(settings)]
    (tmp_path / "results.jsonl").write_text("".join(lines))
    keys = [result.key for result in read_run(tmp_path).results]
    assert [key.setting for key in keys] == [AttackSetting.given({"cut": c}) for c in (2, 6)]


def test_a_setting_that_cannot_be_told_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be told"):
        plain(object())
