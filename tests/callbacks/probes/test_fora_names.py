"""An upper bound is not called FORA: names of figures, today and in results of earlier versions."""

import json
from pathlib import Path

import msgspec
import pytest

from callbacks import ForaProbe
from callbacks.probes.cache import ProbeCache
from qpriv.attacks.reconstruction.fora import ATTACKS
from qpriv.io import append_lines
from qpriv.reporting.quantities import attack_title
from qpriv.reporting.run_folder import read_run
from qpriv.result import Result, append_results, read_results
from tests.callbacks.victims import TinyVictim

NAMES = {"supervised": "supervised_inversion", "substitute": "fora", "simulator": "sdar"}


def test_fora_is_what_the_probe_of_that_name_runs_by_itself() -> None:
    assert ForaProbe().client == "substitute" and ForaProbe().metric_prefix == "fora"


@pytest.mark.parametrize("client", NAMES)
def test_each_client_has_a_name_and_a_heading_of_its_own(client: str) -> None:
    name = ForaProbe(client=client).metric_prefix  # type: ignore[arg-type]
    assert name == NAMES[client] and name in {attack.name for attack in ATTACKS}
    assert ("FORA" in attack_title(name)) == (client == "substitute")
    assert ("upper bound" in attack_title(name)) == (client == "supervised")


def test_configurations_of_before_run_the_same_attack_under_its_own_name() -> None:
    """The random numbers of an attack are drawn by a name that did not change."""
    assert ForaProbe(client="supervised").name == "fora"


OLD = [
    ("fora/psnr", {"client": "supervised"}, "supervised_inversion/psnr"),
    ("fora", {"client": "supervised"}, "supervised_inversion"),  # one that failed
    ("fora_substitute/psnr", {"client": "substitute"}, "fora/psnr"),
    ("sdar/psnr", {"client": "simulator"}, "sdar/psnr"),
    ("fora/psnr", {"client": "substitute"}, "fora/psnr"),
]


@pytest.mark.parametrize("field", ["setting", "attack"])
@pytest.mark.parametrize(("before", "told", "today"), OLD)
def test_old_results_are_read_under_todays_names(
    before: str, told: dict[str, str], today: str, field: str, tmp_path: Path
) -> None:
    old = Result(name=f"attack/{before}", value=1.0, n=2, policy="off", **{field: told})  # type: ignore[arg-type]
    path = tmp_path / "results.jsonl"
    append_lines(path, [msgspec.json.encode(old)])
    (read,) = read_run(tmp_path).results
    assert read.name == f"attack/{today}"
    append_results(path, read_results(path))  # the same figure: there is one line of it
    assert len(read_results(path)) == 1


def test_the_first_versions_named_no_client_and_trained_through_the_true_one(
    tmp_path: Path,
) -> None:
    told = {"auxiliary": "in-domain scenes and their boxes, through the true client"}
    old = Result(name="attack/fora/psnr", value=1.0, n=2, attack=dict(told))
    append_lines(tmp_path / "results.jsonl", [msgspec.json.encode(old)])
    (read,) = read_results(tmp_path / "results.jsonl")
    assert read.name == "attack/supervised_inversion/psnr"


def test_what_an_older_probe_had_finished_is_kept_under_todays_name(tmp_path: Path) -> None:
    cache = ProbeCache(tmp_path, "ForaProbe{}", 0, TinyVictim())
    cache.write("cut=4", [Result(name="attack/fora/psnr", value=1.0, n=2)])
    entry = next(tmp_path.rglob("cut=4.json"))
    held = json.loads(entry.read_bytes())
    held["results"][0]["attack"] = {"client": "supervised"}
    entry.write_text(json.dumps(held))
    read = cache.read("cut=4")
    assert read is not None and [result.name for result in read] == [
        "attack/supervised_inversion/psnr"
    ]
