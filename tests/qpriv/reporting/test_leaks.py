"""What a page must not hide, and must not say, whatever of the figures is missing."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from qpriv.reporting.compare import compare_runs
from qpriv.reporting.evidence import Evidence
from qpriv.reporting.figures import all_pictures
from qpriv.reporting.quantities import quantity
from qpriv.reporting.report import render
from qpriv.reporting.run_folder import Run
from qpriv.reporting.strongest import strongest_figure
from qpriv.reporting.summary import cards, describe_runs, findings
from qpriv.reporting.text import format_table

from . import fakes
from .fakes import result
from .html import Page

HALF = "fixed(0.5,fused)"
DB = {"unit": "dB", "half": 0.2, "n": 250}
NO_BOX = {"n": 0, "status": "not applicable", "unit": "dB"}
SAFE = re.compile(r"\b(safe|protected|protects|private enough)\b", re.IGNORECASE)


def rebuilt(attack="supervised_inversion", *, psnr=20.0, face=None, found=None, **given):
    """Return figures of a reconstruction: of whole pictures, and of faces where there are any."""
    name = f"attack/{attack}"
    rows = [
        result(f"{name}/psnr", psnr, **{**DB, **given}),
        result(f"{name}/floor_mean_image", 14.0, **{**DB, **given}),
    ]
    if face is not None:
        rows += [
            result(f"{name}/psnr_sensitive", face, **{**DB, **given}),
            result(f"{name}/floor_mean_face", 15.0, **{**DB, **given}),
        ]
    if found is not None:
        attack_facts = {"chance": 1 / 60, "gallery": 60}
        rows.append(result(f"{name}/reid_top1", found, **given, attack=attack_facts, half=0.01))
    return rows


def told(rows):
    """Return all words of the page but for settings, and the page itself."""
    page = Page(render([Run(folder=Path("run"), results=tuple(rows))]))
    (main,) = page.all("main")
    return " ".join(main.text.split()), page


def summary(rows):
    return " ".join(findings(Evidence.gathered(list(rows)), []))


def tiles(rows, title="off"):
    card = next(card for card in cards(Evidence.gathered(list(rows))) if card.title == title)
    return {tile.label: tile for tile in card.tiles}


# -- reconstruction


def test_without_face_boxes_the_whole_picture_stands_in_the_summary():
    faceless = [
        result(
            "attack/supervised_inversion/psnr_sensitive",
            None,
            **NO_BOX,
            note="the scenes have no sensitive box",
        ),
        *rebuilt(psnr=19.0),
    ]
    assert "off 19.00 dB (5.0 dB above it)" in summary(faceless)
    shown = tiles(faceless)
    assert shown["Image PSNR"].value == "19.00 dB"
    assert "mean image 14.00 dB" in shown["Image PSNR"].note
    assert "Face PSNR" not in shown
    text, _ = told(faceless)
    assert "Face PSNR n/a, the scenes have no sensitive box" in text
    assert "19.00" in format_table(faceless)


def test_what_does_not_apply_is_no_matter_of_time():
    note = "the scenes have no sensitive box; over its budget of 600 s"
    rows = [
        result("attack/supervised_inversion/psnr_sensitive", None, **NO_BOX, note=note),
        *rebuilt(),
    ]
    _, page = told(rows)
    (row,) = page.rows("attack-supervised_inversion-facescenes")
    assert "no sensitive box" in row and "over its budget" not in row


def test_time_is_told_of_a_figure_that_has_a_value():
    rows = rebuilt(note="over its budget of 600 s")
    text, _ = told(rows)
    assert "over its budget of 600 s" in text


@pytest.mark.parametrize(
    "attack", ["supervised_inversion", "fora", "sdar", "fsha", "fsha_convolution"]
)
def test_every_inverter_has_a_headline_where_it_alone_was_tried(attack):
    rows = rebuilt(attack, face=22.0, found=0.9)
    shown = tiles(rows)
    assert shown["Face PSNR"].value == "22.00 dB" and shown["Faces found first"].value == "0.900"
    assert "off 22.00 dB (7.0 dB above it)" in summary(rows)


def test_the_headline_is_the_strongest_attackers_whoever_it_is():
    rows = [
        *rebuilt("supervised_inversion", face=16.0, found=0.1),
        *rebuilt("fsha", face=21.0, found=0.7),
    ]
    shown = tiles(rows)
    assert shown["Face PSNR"].value == "21.00 dB" and "FSHA" in shown["Face PSNR"].note
    assert shown["Faces found first"].value == "0.700"
    assert "21.00" in format_table(rows)


def test_the_control_of_an_attack_is_no_headline():
    assert "Face PSNR" not in tiles(
        [result("accuracy", 0.9), *rebuilt("fsha_control", face=21.0, found=0.7)]
    )


def test_the_strongest_setting_counts_also_where_it_was_tried_on_one_policy_alone():
    rows = [
        row
        for policy, steps, face in (("off", 60, 16.0), (HALF, 60, 14.0), ("off", 600, 22.0))
        for row in rebuilt(face=face, policy=policy, setting={"steps": steps})
    ]
    assert tiles(rows)["Face PSNR"].value == "22.00 dB"
    assert "steps 600" in tiles(rows)["Face PSNR"].note
    assert tiles(rows, HALF)["Face PSNR"].value == "14.00 dB"


def test_below_the_floor_is_never_told_as_safety():
    rows = [*rebuilt(face=13.0, found=0.4, policy=HALF), *rebuilt(face=23.0, found=1.0)]
    said = summary(rows)
    assert f"{HALF} 13.00 dB (2.0 dB below it)" in said
    assert "Below that guess is no evidence of safety" in said
    assert f"{HALF} 0.400 (chance 0.017)" in said
    text, _ = told(rows)
    assert not SAFE.search(text.replace("no proof of safety", ""))


def test_above_the_floor_there_is_no_such_remark():
    assert "Below that guess" not in summary(rebuilt(face=23.0))


def test_level_with_the_floor_is_neither_above_nor_below():
    assert "off 14.00 dB (level with it)" in summary(rebuilt(psnr=14.01 - 0.01))


def test_recognition_stands_beside_every_reconstruction():
    shown = tiles(rebuilt(face=20.0))
    assert shown["Faces found first"].value == "not measured"
    assert "does not tell whether a face is recognised" in shown["Faces found first"].note
    small = result(
        "attack/supervised_inversion/reid_top1",
        None,
        n=0,
        status="not applicable",
        note="gallery of 8 people",
    )
    shown = tiles([*rebuilt(face=20.0), small])
    assert (shown["Faces found first"].value, shown["Faces found first"].note) == (
        "n/a",
        "gallery of 8 people",
    )


def test_without_a_floor_the_figure_stands_and_says_so():
    rows = rebuilt()[:1]
    assert tiles(rows)["Image PSNR"].note.startswith("mean image not measured")
    text, _ = told(rows)
    assert "off 20.00 dB (no floor measured)" in text
    assert "nothing to hold it against: no mean image" in text


# -- cuts that no run has


def test_a_cut_that_no_run_has_is_no_headline():
    real = rebuilt(face=16.0, found=0.1, channel="up@4")
    deep = rebuilt(face=25.0, found=0.9, channel="hypothetical:up@1", setting={"cut": 1})
    shown = tiles([*real, *deep])
    assert shown["Face PSNR"].value == "16.00 dB" and shown["Faces found first"].value == "0.100"
    assert "25.00" not in summary([*real, *deep])
    (card,) = cards(Evidence.gathered([*real, *deep]))
    assert card.supposed == ()


def test_what_only_a_supposed_cut_shows_stands_apart_and_is_called_so():
    rows = [result("accuracy", 0.9), *rebuilt(face=25.0, found=0.9, channel="hypothetical:up@4")]
    (card,) = cards(Evidence.gathered(rows))
    assert [tile.label for tile in card.tiles] == ["Accuracy"]
    assert {tile.label for tile in card.supposed} == {
        "Face PSNR",
        "Image PSNR",
        "Faces found first",
    }
    assert all("hypothetical:up@4" in tile.note for tile in card.supposed)
    assert "at a cut these runs do not have (hypothetical:up@4)" in summary(rows)
    text, _ = told(rows)
    assert "No headline, since nothing crosses there" in text
    table = format_table(rows)
    assert table.index("Accuracy") < table.index("Read at a cut") < table.index("25.00")


# -- membership


def asked(auc, blind=0.62, *, prefix="", **given):
    rows = [result(f"attack/membership/{prefix}auc", auc, half=0.03, **given)]
    return rows if blind is None else [
        *rows, result("attack/membership/blind_auc", blind, half=0.04, **given)
    ]  # fmt: skip


def test_membership_stands_beside_the_blind_baseline_everywhere(tmp_path):
    rows = [
        row
        for policy, accuracy, auc in (("off", 0.9, 0.75), (HALF, 0.8, 0.7))
        for row in (
            *(
                result("accuracy", accuracy - epoch / 10, policy=policy, epoch=2 - epoch)
                for epoch in (0, 1)
            ),
            *(
                each
                for epoch in (1, 2)
                for each in asked(auc + epoch / 100, policy=policy, epoch=epoch)
            ),
        )
    ]
    assert "blind baseline 0.620" in tiles(rows)["Membership AUC"].note
    assert "off 0.770 (blind baseline 0.620" in summary(rows)
    assert "is to be held against 0.620: blind baseline" in format_table(rows)
    text, page = told(rows)
    assert "Membership AUC" in text
    for chart in ("pareto-auc", "epochs-attack-membership-auc"):
        (figure,) = [e for e in page.all("figure") if e.attributes.get("id") == chart]
        assert "blind baseline" in figure.text
    for row in page.rows("attack-membership-facescenes"):
        assert "0.620" in row
    one, other = (
        fakes.write_run(tmp_path / name, [r for r in rows if r.policy == policy])
        for name, policy in (("a", "off"), ("b", HALF))
    )
    compared = str(compare_runs(one, other))
    assert "0.770 [0.740, 0.800] (blind baseline 0.620)" in compared


def test_a_missing_blind_baseline_is_said_wherever_the_figure_stands():
    rows = asked(0.75, blind=None)
    assert "blind baseline not measured" in tiles(rows)["Membership AUC"].note
    text, page = told(rows)
    assert "blind baseline not measured" in text
    assert "no blind baseline" in page.rows("attack-membership-facescenes")[0] + text


def test_the_curves_of_membership_name_the_blind_baseline(tmp_path):
    folder = fakes.write_run(tmp_path / "run", fakes.policy_results("off", seed=0))
    fakes.write_curves(folder, "off", 0)
    from qpriv.reporting.run_folder import read_run

    run = read_run(folder)
    pictures = {p.key: p for p in all_pictures(Evidence.of([run]), run.curves)}
    assert "AUC of 0.507 (blind baseline)" in pictures["roc-policies"].caption


def test_the_strongest_membership_attack_and_query_make_the_headline():
    rows = [
        *asked(0.70, setting={"query_policy": "same"}, policy=HALF),
        *asked(0.80, prefix="rmia_", blind=None, setting={"query_policy": "same"}, policy=HALF),
        *asked(0.84, prefix="rmia_", setting={"query_policy": "off"}, policy=HALF),
    ]
    tile = tiles(rows, HALF)["Membership AUC"]
    assert tile.value == "0.840" and "RMIA, query policy off" in tile.note
    assert "0.840" in summary(rows) and "0.840" in format_table(rows)


def test_the_worst_question_makes_the_headline_of_sensitive_tokens():
    name = "attack/irrelevant_questions/false_premise_sensitive_tokens_kept"
    rows = [
        result("sensitive_tokens_kept", 0.06, policy=HALF),
        result(name, 0.32, policy=HALF),
    ]
    tile = tiles(rows, HALF)["Sensitive tokens"]
    assert tile.value == "0.320" and "false premise" in tile.note
    alone = tiles(rows[:1], HALF)["Sensitive tokens"]
    assert alone.value == "0.060" and "question" not in alone.note


# -- policies


def introduction(*policies):
    rows = [result("accuracy", 0.9, policy=policy) for policy in policies]
    run = Run(folder=Path("run"), results=tuple(rows))
    return describe_runs([run], Evidence.gathered(rows))


def test_what_is_pruned_is_said_of_the_policies_that_prune():
    assert "every visual token is kept" in introduction("off") and "drop" not in introduction("off")
    assert "fixed" not in introduction("fixed(0,fused)") and "drop" not in introduction(
        "fixed(0,fused)"
    )
    assert "A pruning policy drops or merges part" in introduction(HALF)
    mixed = introduction("off", HALF)
    assert "Some runs keep every visual token; in the others" in mixed


def test_where_nobody_attacked_nothing_is_said_of_attackers():
    assert "No attacker was tried" in introduction("off")
    rows = rebuilt()
    run = Run(folder=Path("run"), results=tuple(rows))
    said = describe_runs([run], Evidence.gathered(rows))
    assert "Attackers try to take" in said and "No attacker" not in said


def test_policies_of_any_kind_have_a_card_while_they_are_few():
    rows = [
        *(result("accuracy", 0.9, policy=policy) for policy in ("off", "random(0.5)")),
        *rebuilt(psnr=24.0, policy="random(0.5)"),
    ]
    assert tiles(rows, "random(0.5)")["Image PSNR"].value == "24.00 dB"


def test_policies_without_a_card_are_counted_and_a_worse_leak_is_named():
    policies = ["off", HALF, "dtp(fused)", *(f"random(0.{n})" for n in range(1, 6))]
    rows = [
        row
        for number, policy in enumerate(policies)
        for row in (
            result("accuracy", 0.9, policy=policy),
            *rebuilt(psnr=15.0 + number, policy=policy),
        )
    ]
    said = summary(rows)
    assert "Not on a card: 5 other policies" in said
    assert "Image PSNR is highest there: 22.00 dB under random(0.5)" in said


def test_each_data_set_has_cards_and_sentences_of_its_own():
    rows = [*rebuilt(psnr=19.0), *rebuilt(psnr=26.0, dataset="SLAKE/test")]
    text, page = told(rows)
    assert "off · SLAKE" in [e.text for e in page.all("h3")]
    assert "SLAKE: Pictures" in text and "26.00 dB" in text and "19.00 dB" in text


# -- accuracy and SER


def test_accuracy_is_told_by_its_data_and_split():
    rows = [result("accuracy", 0.9, dataset="FaceScenes/test")]
    assert "on FaceScenes/test" in tiles(rows)["Accuracy"].note
    assert "questions of FaceScenes/test that are answered right: off 90 %" in summary(rows)
    assert "Accuracy: on FaceScenes/test." in format_table(rows)
    mixed = summary([*rows, result("accuracy", 0.8, policy=HALF, dataset="FaceScenes/validation")])
    assert "off 90 % (FaceScenes/test)" in mixed
    assert f"{HALF} 80 % (FaceScenes/validation)" in mixed
    _, page = told(rows)
    assert "accuracy on FaceScenes/test" in page.source


def test_accuracy_is_told_also_without_a_run_that_prunes_nothing():
    assert f"{HALF} 80 %" in summary([result("accuracy", 0.8, policy=HALF)])


def test_a_ratio_of_exclusion_is_never_told_as_protection():
    rows = [result("sensitivity_exclusion_ratio", 2.5, half=0.1, policy=HALF)]
    assert "no evidence of privacy" in tiles(rows, HALF)["SER"].note
    text, _ = told(rows)
    assert "how many sensitive tokens survive was not measured" in text
    assert not SAFE.search(text.replace("no proof of safety", ""))
    assert "SER: no evidence of privacy." in format_table(rows)


# -- what failed, and what is no number


def test_a_failed_attack_stands_on_the_card():
    failed = result(
        "attack/supervised_inversion", None, status="failed", note="cut=4: out of memory", n=0
    )
    shown = tiles([result("accuracy", 0.9), failed])
    for label in ("Face PSNR", "Image PSNR", "Faces found first"):
        assert shown[label].value == "failed" and "out of memory" in shown[label].note
    assert "failed" in format_table([result("accuracy", 0.9), failed])


def test_a_seed_that_failed_is_told_beside_those_that_did_not():
    rows = [
        *rebuilt(seed=0),
        result("attack/supervised_inversion/psnr", None, status="failed", n=0, seed=1, unit="dB"),
    ]
    assert "failed in 1 seed" in tiles(rows)["Image PSNR"].note


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_no_figure(value):
    rows = [*rebuilt("supervised_inversion", psnr=value), *rebuilt("fsha", psnr=18.0)]
    assert tiles(rows)["Image PSNR"].value == "18.00 dB"
    text, _ = told([replace(row, ci=None) for row in rows])
    assert "nan" not in text and " inf " not in text
    assert "nan" not in format_table(rebuilt(psnr=value))


@pytest.mark.parametrize("attack", ["gradient/label_accuracy_head", "attributes/sensitive_gain_over_question",
                                    "side_channel/answer_from_kept_count_gain"])  # fmt: skip
def test_an_attack_without_a_headline_is_told_of_in_the_summary(attack):
    said = summary([result(f"attack/{attack}", 0.987, half=0.01)])
    assert quantity(f"attack/{attack}").title in said and "0.987" in said


def test_a_claim_keeps_what_was_measured_where_it_cannot_be_decided():
    rows = asked(0.75, policy=HALF, setting={"query_policy": "same"})
    text, _ = told(rows)
    assert "Not decided here: needs the same attack without pruning" in text
    assert "Membership AUC 0.750" in text and "blind baseline 0.620" in text


def test_claims_are_made_where_probes_ran_and_no_question_was_asked():
    text, _ = told(rebuilt(face=23.0, found=1.0))
    assert "off: the inverter beats the mean-face floor" in text


def test_a_figure_of_no_attack_is_the_one_to_show():
    held = Evidence.gathered([result("accuracy", 0.9), result("accuracy", 0.5, dataset="A/test")])
    (off,) = held.conditions
    assert strongest_figure(held, quantity("accuracy"), off).dataset == "A/test"
