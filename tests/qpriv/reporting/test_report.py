"""The page: its structure, what it shows, and that it refers to nothing outside itself."""

import html
import re
from dataclasses import replace
from itertools import pairwise, product

import pytest

from qpriv.curve import CURVES_FILE, Curve, read_curves
from qpriv.errors import DataError
from qpriv.reporting import write_report
from qpriv.reporting.evidence import Evidence
from qpriv.reporting.figures import pictures_by_dataset
from qpriv.result import Result, read_results

from . import fakes
from .html import Page

HOSTILE = "<script>alert('x')</script>\"'&"


@pytest.fixture(scope="session")
def parsed(page) -> Page:
    return Page(page)


def test_the_page_is_well_formed(parsed):
    assert parsed.declaration == "doctype html"
    assert parsed.unclosed == []
    assert parsed.all("html")[0].attributes["lang"] == "en"
    assert [parsed.all(tag)[0].text for tag in ("title",)] == ["qpriv report"]


def test_identifiers_are_unique_and_references_lead_somewhere(parsed):
    ids = [e.attributes["id"] for e in parsed.elements if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    local = [e.attributes["href"][1:] for e in parsed.elements if "href" in e.attributes]
    labels = [
        each
        for element in parsed.elements
        for each in element.attributes.get("aria-labelledby", "").split()
    ]
    assert local and labels
    assert set(local) | set(labels) <= set(ids)


def test_nothing_outside_is_referred_to(page, parsed):
    for element in parsed.elements:
        for name in ("src", "href", "xlink:href", "srcset", "poster", "action", "data"):
            value = element.attributes.get(name, "")
            assert not value or value.startswith(("#", "data:image/png;base64,")), (name, value)
    assert not re.search(r"url\((?!#)|@import|https?:", page)
    assert not parsed.all("script") and not parsed.all("link") and not parsed.all("iframe")


def test_headings_descend_one_level_at_a_time(parsed):
    levels = [int(e.tag[1]) for e in parsed.elements if re.fullmatch(r"h[1-6]", e.tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_every_table_has_a_caption_and_scoped_heads(parsed):
    tables = parsed.all("table")
    assert len(tables) >= 6
    captions = [e for e in parsed.all("caption") if e.text.strip()]
    assert len(captions) == len(tables)
    assert {e.attributes["scope"] for e in parsed.all("th")} == {"col", "row"}


def test_every_picture_says_in_words_what_it_shows(parsed):
    assert parsed.all("img") and all(e.attributes["alt"] for e in parsed.all("img"))
    drawings = parsed.all("svg")
    assert len(drawings) >= 6
    for drawing in drawings:
        own = [e for e in parsed.elements if drawing in e.parents and e.tag in ("title", "desc")]
        assert drawing.attributes["role"] == "img"
        assert len(own) == 2 and all(len(e.text) > 10 for e in own)


def test_the_policies_table_holds_every_policy_with_interval_and_n(parsed):
    rows = parsed.rows("policies-facescenes")
    names = [row.split(" ")[0] for row in rows]
    assert names[0] == "off" and set(fakes.POLICIES) <= set(names)
    off = rows[0]
    assert "n/a" in off, "the sensitivity exclusion ratio does not apply without pruning"
    assert re.search(r"0\.8\d\d\s*\[0\.8\d\d, 0\.8\d\d\]", off)
    assert "n = 300, 3 seeds" in parsed.source


def test_ways_to_divide_the_work_stand_side_by_side(tmp_path):
    for seed, paradigm in product((0, 1, 2), ("centralized", "u_shaped(2)", "federated(4)")):
        at = {"seed": seed, "paradigm": paradigm}
        rows = [
            fakes.result("accuracy", 0.8 + seed / 100, **at),
            fakes.result("bytes_up", 1000.0 + seed, unit="bytes", **at),
            fakes.result("train_seconds", 12.0 + seed, unit="s", **at),
        ]
        fakes.write_run(tmp_path / f"{paradigm}-{seed}", rows)
    page = Page(write_report([tmp_path], tmp_path).read_text())
    rows = page.rows("paradigms-facescenes")
    assert len(rows) == 3 and all(row.startswith("off") for row in rows)
    assert "0.810[0.785, 0.835]" in rows[0] and "13.0[10.5, 15.5]" in rows[0]
    assert "federated(4)" in rows[1] and "u_shaped(2)" in rows[2]


def test_one_way_to_divide_the_work_needs_no_table(parsed):
    assert parsed.rows("paradigms-facescenes") == []


def test_attack_figures_stand_beside_floors_settings_and_marks(parsed, page):
    fora, membership = (
        parsed.rows("attack-supervised_inversion-facescenes"),
        parsed.rows("attack-membership-facescenes"),
    )
    assert "15.96" in fora[0] and "chance 0.017" in fora[0]
    assert any("query policy: resampled" in row for row in membership)
    assert all("0.507" in row for row in membership), "the blind baseline stands beside the AUC"
    assert "short attacker" in page
    assert "knows positions: yes" in page


def test_a_failed_probe_is_seen(parsed):
    trouble = [e.text for e in parsed.all("div") if e.attributes.get("class") == "troubles"]
    assert (
        "attack/supervised_inversion/psnr_sensitive failed (out of its time budget)" in trouble[0]
    )
    row = next(
        r
        for r in parsed.rows("attack-supervised_inversion-facescenes")
        if r.startswith("downsample")
    )
    assert "failed" in row and "out of its time budget" in row


def test_every_claim_ends_in_one_of_three_verdicts(parsed):
    verdicts = {
        e.text.strip()
        for e in parsed.all("span")
        if e.attributes.get("class", "").startswith("verdict") and e.inside("td")
    }
    assert verdicts == {"reproduced", "not reproduced", "undecided"}


def test_all_results_are_shown_or_merged(study_folder, tmp_path):
    write_report([study_folder], tmp_path)
    merged = read_results(tmp_path / "results.jsonl")
    original = [r for f in sorted(study_folder.rglob("results.jsonl")) for r in read_results(f)]
    assert [replace(r, stage="", tags={}) for r in merged] == original
    assert len({r.spot for r in merged}) == len(merged)
    page = Page((tmp_path / "report.html").read_text())
    columns = {e.text.strip() for e in page.all("th") if e.attributes["scope"] == "col"}
    for title in (
        "SSIM, whole image",
        "PSNR, dropped patches, dB",
        "TPR at 1 % FPR",
        "Gradients down",
    ):
        assert title in columns
    assert any("val/loss" in row for row in page.rows("others"))


def test_hostile_text_stays_text(tmp_path):
    rows = [
        Result(name=f"accuracy/{HOSTILE}", value=0.5, n=3, policy=HOSTILE, note=HOSTILE),
        Result(name="accuracy", value=None, n=0, status="failed", note=HOSTILE, dataset=HOSTILE),
        Result(
            name="attack/supervised_inversion/psnr",
            value=1.0,
            n=3,
            attack={HOSTILE: HOSTILE},
            policy=HOSTILE,
        ),
    ]
    folder = fakes.write_run(tmp_path / "run", rows, config=f"a: {HOSTILE}\n")
    fakes.write_media(folder, HOSTILE, kind=HOSTILE[:8].replace("/", ""), private=False)
    page = Page(write_report([folder], tmp_path / "out").read_text())
    assert not page.all("script")
    assert "alert('x')" in page.all("main")[0].text


@pytest.mark.parametrize("rows", [[], [Result(name="accuracy", value=0.5, n=3)]])
def test_hardly_anything_measured_still_makes_a_page(tmp_path, rows):
    folder = fakes.write_run(tmp_path / "run", rows)
    page = Page(write_report([folder], tmp_path / "out").read_text())
    assert page.unclosed == []
    assert "No attack was run." in page.all("main")[0].text
    if not rows:
        assert "Nothing was measured that a claim could rest on." in page.all("main")[0].text


def test_a_torn_last_line_is_said_and_not_read(run_folder, tmp_path):
    before = len(read_results(run_folder / "results.jsonl"))
    with (run_folder / "results.jsonl").open("ab") as file:
        file.write(b'{"name": "accuracy", "val')
    page = write_report([run_folder], tmp_path / "out").read_text()
    assert "results.jsonl ends in half a line" in page
    assert len(read_results(tmp_path / "out" / "results.jsonl")) == before


def test_a_broken_line_inside_is_refused_with_its_place(run_folder, tmp_path):
    (run_folder / "media.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match=r"media.jsonl, line 1"):
        write_report([run_folder], tmp_path / "out")


def test_a_missing_folder_and_an_empty_one_are_refused(tmp_path):
    with pytest.raises(DataError, match="no such run folder"):
        write_report([tmp_path / "nowhere"], tmp_path / "out")
    with pytest.raises(DataError, match="holds no run"):
        write_report([tmp_path], tmp_path / "out")


def test_redaction_leaves_no_private_picture_caption_or_path(run_folder, tmp_path):
    fakes.write_media(run_folder, "off", kind="reconstruction", private=True)
    fakes.write_media(run_folder, "off", kind="kept_tokens", private=False)
    (run_folder / "config.yaml").write_text("root: /home/someone/data/slake\n")
    shown = write_report([run_folder], tmp_path / "a").read_text()
    redacted = write_report([run_folder], tmp_path / "b", redact=True).read_text()
    assert len(Page(shown).all("img")) == 2 and "someone" in shown
    assert len(Page(redacted).all("img")) == 1
    assert "reconstruction under off" in shown and "reconstruction under off" not in redacted
    assert "Private picture withheld" in redacted
    assert "someone" not in redacted and "…/slake" in redacted


def test_a_listed_picture_that_is_gone_is_told_of(run_folder, tmp_path):
    fakes.write_media(run_folder, "off", kind="reconstruction", private=True)
    next((run_folder / "media").glob("*.png")).unlink()
    page = write_report([run_folder], tmp_path / "out").read_text()
    assert "is listed but missing" in page


def test_only_the_last_epoch_is_shown_and_the_rest_is_counted(run_folder, tmp_path):
    for epoch in range(3):
        fakes.write_media(run_folder, "off", kind="kept_tokens", private=False, epoch=epoch)
    page = Page(write_report([run_folder], tmp_path / "out").read_text())
    assert len(page.all("img")) == 1
    assert "off · epoch 2 · seed 0" in page.all("main")[0].text
    assert "2 more (earlier epochs, other seeds)" in page.all("main")[0].text


def test_writing_again_replaces_the_page_and_leaves_no_draft(run_folder, tmp_path):
    for _ in range(2):
        write_report([run_folder], tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "report.html",
        "results.jsonl",
    ]


def test_error_rates_are_drawn_on_logarithmic_axes_after_the_last_epoch(parsed):
    drawn = {e.attributes["id"]: e for e in parsed.all("figure") if e.attributes.get("id")}
    policies, attacks = drawn["roc-policies"], drawn["roc-attacks"]
    for figure in (policies, attacks):
        assert "guessing" in figure.text and "false positive rate" in figure.text
    # 0.01 to the power of 0.35, 0.36 and 0.37, in the mean of three seeds
    assert "off: 0.191 at a false positive rate of 0.01" in policies.text
    assert "dtp(fused): 0.191" in policies.text
    assert "shadow models: 0.191" in attacks.text and "LiRA: 0.302" in attacks.text


def test_a_curve_that_was_measured_again_counts_once(run_folder):
    for _ in range(2):
        fakes.write_curves(run_folder, "off", seed=0)
    with (run_folder / CURVES_FILE).open("ab") as file:
        file.write(b'{"name": "attack/mem')  # what a killed run leaves behind
    assert len(read_curves(run_folder / CURVES_FILE)) == 4


def test_every_data_set_has_charts_of_its_own():
    rows = [replace(row, dataset=row.dataset.replace("FaceScenes", name))
            for name in ("FaceScenes", "SLAKE") for policy in ("off", "fixed(0.5,fused)")
            for row in fakes.policy_results(policy, 0)]  # fmt: skip
    by_dataset = {name: Evidence.gathered(rows).within(name) for name in ("FaceScenes", "SLAKE")}
    curve = Curve(name="attack/membership/roc", n=100, dataset="SLAKE/test", policy="off", seed=0,
                  x=(0.01, 1.0), y=(0.1, 1.0), setting={"query_policy": "same"},
                  attack={"nonmembers": 100})  # fmt: skip
    found = pictures_by_dataset(by_dataset, [curve])
    alone = pictures_by_dataset({"FaceScenes": by_dataset["FaceScenes"]})
    assert all(" · " not in picture.title for picture in alone)
    ends = {name: [p for p in found if p.title.endswith(f" · {name}")] for name in by_dataset}
    assert len(ends["FaceScenes"]) == len(alone) and len(ends["SLAKE"]) == len(alone) + 2
    assert len({picture.key for picture in found}) == len(found)
    ids = [i for picture in found for i in re.findall(r' id="([^"]+)"', picture.svg)]
    assert len(set(ids)) == len(ids)
    for picture in found:
        assert set(re.findall(r"url\(#([^)]+)\)", picture.svg)) <= set(ids)
        assert f"{html.escape(picture.title)}</title>" in picture.svg
