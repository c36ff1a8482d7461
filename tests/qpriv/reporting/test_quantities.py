"""What is declared beside an attack or metric is what every page shows."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from qpriv.attacks import registry
from qpriv.declaration import Attack, Claimed, Row
from qpriv.quantity import Quantity
from qpriv.reporting import pages, quantities, report
from qpriv.reporting.claims import attacks as claims
from qpriv.reporting.evidence import Evidence
from qpriv.reporting.figures.pareto import pareto_pictures
from qpriv.reporting.run_folder import Run, read_run
from qpriv.reporting.summary import cards
from qpriv.reporting.tables import attack_tables
from qpriv.reporting.text import format_table
from qpriv.result import append_results

from .fakes import result

PALMS = Attack(
    name="palms",
    title="Palm reading",
    quantities=(
        Quantity(
            name="told",
            title="Lines told",
            label="Palms told",
            meaning="Share of the lines of a palm that are told.",
            direction="leak",
            baseline="told_blind",
            chance=0.25,
            headline=True,
        ),
        Quantity(name="told_blind", title="Lines told blind", meaning="Without a hand."),
        Quantity(name="mounts", title="Mounts told", meaning="The mounts.", leading=False),
    ),
    rows=(Row(what="palms, `PalmProbe`", who="server; no", holds="hands", knows="nothing",
              measures="lines", beside="blind", source="own"),),
    claims=(
        Claimed(topic="Palms", statement="more is told than blind.", quantity="told",
                tested="Told minus told blind", against="baseline", above=0.1),
    ),
)  # fmt: skip


@pytest.fixture
def another_attack(monkeypatch):
    """Declare one attack more, as its own file does."""
    known = registry.attacks()
    for module in (registry, quantities, pages, claims):
        monkeypatch.setattr(module, "attacks", lambda: (*known, PALMS))
    quantities.quantities.cache_clear()
    yield
    quantities.quantities.cache_clear()


def rows():
    shared = {"half": 0.01, "n": 40, "seed": 0}
    return [
        each
        for policy, told in (("off", 0.9), ("dtp(fused)", 0.4))
        for each in (
            result("accuracy", told, policy=policy, **shared),
            result("attack/palms/told", told, policy=policy, **shared),
            result("attack/palms/told_blind", 0.3, policy=policy, **shared),
            result("attack/palms/mounts", 0.77, policy=policy, **shared),
        )
    ]


def test_a_declared_attack_is_on_every_page(another_attack):
    held = Evidence.gathered(rows())
    (tables,) = attack_tables(held, "FaceScenes")
    assert tables.main.caption.startswith("Palm reading")
    assert [column.title for column in tables.main.columns] == ["Lines told", "Lines told blind"]
    assert [column.title for column in tables.more.columns] == ["Mounts told"]
    tiles = {tile.label: tile for card in cards(held) for tile in card.tiles}
    assert "Lines told blind 0.300 · guessing 0.25" in tiles["Palms told"].note
    assert "Accuracy against palms told" in {each.title for each in pareto_pictures(held)}
    text = format_table(rows())
    assert "Palms told" in text and "is to be held against 0.300: Lines told blind." in text
    (claim,) = [claim for claim in claims.declared_claims(held) if claim.topic == "Palms"]
    assert (claim.statement, claim.verdict) == ("off: more is told than blind.", "reproduced")
    assert "palms, `PalmProbe`" in pages.attackers() and "attack/palms/told" in pages.figures()
    page = report.render([Run(folder=Path("run"), results=tuple(rows()))])
    assert "Share of the lines of a palm that are told." in page and "0.770" in page


def test_every_figure_that_probes_declare_is_told_in_one_sentence():
    for own in quantities.quantities().values():
        assert own.title and own.meaning.endswith("."), own.name
        assert not own.baseline or own.baseline in quantities.quantities(), own.name
        assert not own.headline or own.leading, own.name
    titles = [(a.name, own.title) for a in registry.attacks() for own in a.quantities]
    assert len(titles) == len(set(titles))


def test_every_attack_of_the_package_is_found():
    folder = Path(registry.__file__).parent
    declaring = {
        p.stem for p in folder.rglob("*.py") if re.search("^ATTACKS = ", p.read_text(), re.M)
    }
    assert len(declaring) >= 9
    assert {"supervised_inversion", "fora", "sdar", "fsha", "membership", "gradient"} <= {
        attack.name for attack in registry.attacks()
    }


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"note": "training, a sample", "dataset": ""}, "bytes_up"),
        ({"note": "would cross at 4 in one pass", "dataset": ""}, "forward_bytes_up"),
        ({"dataset": "FaceScenes/private"}, "activation_bytes_up"),
    ],
)
def test_bytes_of_earlier_versions_are_read_by_what_they_were(given, name, tmp_path):
    old = replace(result("bytes_up", 7.0, unit="bytes"), **given)
    append_results(tmp_path / "results.jsonl", [old])
    assert [own.name for own in read_run(tmp_path).results] == [name]
