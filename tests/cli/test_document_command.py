"""`qpriv documents`: a model, its baseline and its defence, each by one command."""

import pytest

import cli.documents
from cli.main import main
from qpriv.attacks.extraction.outcome import read_outcome
from qpriv.result import read_results

SHORT = ["--config", "documents/run.yaml", "--recipe.epochs", "1"]
SHORT += ["--num_base", "2", "--num_eval", "2", "--num_canaries", "{1: 2}"]


def train(folder, *more):
    main(["documents", "train", *SHORT, "--out", str(folder), *more])
    return {(r.name, r.defence): r for r in read_results(folder / "results.jsonl")}


def test_f_is_held_against_f_g_and_is_not_trained_twice(tmp_path, monkeypatch):
    known, trained = tmp_path / "f_G", tmp_path / "f"
    assert ("anls", "none") in train(known, "--include_canaries", "false")
    compared = ["--baselines", f"[{known}]"]
    first = train(trained, *compared)
    assert first["extraction/memorised", "none"].value is not None
    assert ("anls_change", "ITP") in first and ("anls_change", "AR") in first
    assert read_outcome(trained).memorised is not None

    def train_again(*given):
        raise AssertionError

    monkeypatch.setattr(cli.documents, "train_model", train_again)
    assert train(trained, *compared) == first


def test_a_folder_of_other_settings_is_refused_before_training(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text("document_model: another\n")
    with pytest.raises(SystemExit) as leaving:
        train(tmp_path)
    assert leaving.value.code == 2
    assert "the run in this folder has other settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--recipe.epochs", "0"], "epochs is 0"),
        (["--budget", "{epsilon: 3}"], "DP-SGD trains adapters"),
        (["--resolutio", "1"], "did you mean resolution?"),
        (["--half.number", "9"], "number is 9"),
        (["--baselines", "[nowhere]"], "no outcome of a document model"),
    ],
)
def test_mistakes_are_told_in_a_line_before_training(tmp_path, words, message, monkeypatch, capsys):
    monkeypatch.setattr(cli.documents, "train_model", None)
    with pytest.raises(SystemExit) as leaving:
        train(tmp_path, *words)
    assert leaving.value.code == 2 and message in capsys.readouterr().err


def test_an_unknown_action_is_refused(capsys):
    with pytest.raises(SystemExit) as leaving:
        main(["documents", "trian"])
    assert leaving.value.code == 2 and "trian" in capsys.readouterr().err


@pytest.mark.slow
def test_a_dry_run_of_the_study_scores_halves(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["study", "--config", "study/document_scores.yaml", "--out", "out", "--fast"])
    assert "11 of 11 runs are done." in capsys.readouterr().out
    names = {result.name for result in read_results(tmp_path / "out" / "results.jsonl")}
    assert {
        "extraction/memorisation", "extraction/simplicity", "extraction/memorised_for_certain",
    } <= names  # fmt: skip
    page = (tmp_path / "out" / "report.html").read_text()
    assert all(f"<strong>{each}, " in page for each in ("all canaries", "E - G", "G"))
    assert "Answers that come out of erased pages" in page and "M by kind of information" in page
